"""hack/test, as far as it chooses tests."""

from __future__ import annotations

import subprocess

from tests.arch.sources import ROOT


def test_hack_test_takes_a_folder_of_tests_that_has_the_name_of_another_folder() -> None:
    assert (ROOT / "api").is_dir()
    command = [str(ROOT / "hack/test"), "api", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    found = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert found, done.stderr
    assert all(each.startswith("tests/api/") for each in found)
