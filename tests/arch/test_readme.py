"""What the README says is so."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_api.config import decode
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.cli import main
from dra_driver.settings import Settings, flag_of, variable_of
from tests import manifests
from tests.arch.sources import ROOT
from tests.manifests import of_kind

README = (ROOT / "README.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SCRIPT = re.compile(r"(?:hack|\.ci)/[\w-]+")


def _blocks(language: str) -> Iterator[str]:
    return (text for found, text in _BLOCK.findall(README) if found == language)


def _commands() -> list[list[str]]:
    lines = [line for block in _blocks("sh") for line in block.splitlines() if line.strip()]
    return [shlex.split(line, comments=True) for line in lines]


def test_readme_begins_with_two_commands() -> None:
    first = next(_blocks("sh")).splitlines()
    assert [line.split()[0] for line in first] == ["hack/demo", "hack/test"]
    assert README.index("```sh") < 20


def test_readme_names_scripts_that_exist_and_can_run() -> None:
    named = set(_SCRIPT.findall(README))
    assert {"hack/demo", "hack/test", "hack/check", ".ci/run"} <= named
    for script in sorted(named):
        assert (ROOT / script).stat().st_mode & 0o111, script


def test_readme_uses_only_commands_of_the_project() -> None:
    for program, *arguments in _commands():
        if program == "kubectl":
            assert (ROOT / arguments[-1]).exists(), arguments
        else:
            assert program == "gpuslice" or _SCRIPT.fullmatch(program), program


@pytest.mark.parametrize(
    "command", [words for words in _commands() if words[0] == "gpuslice"], ids=" ".join
)
def test_readme_uses_flags_that_exist(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [word for word in command if word.startswith("--")]
    assert main([command[1], *(f for f in flags if f == "--json"), "--help"]) == 0
    known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    assert set(flags) <= known


def test_readme_has_every_setting_in_its_table() -> None:
    done = subprocess.run(
        [ROOT / "hack/settings-table", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for name in Settings.model_fields:
        assert f"| `{flag_of(name)}` | `{variable_of(name)}`" in README


def test_readme_has_recipes_that_are_valid() -> None:
    found = [each for block in _blocks("yaml") for each in yaml.safe_load_all(block)]
    documents = [each for each in found if "kind" in each]
    assert {each["kind"] for each in documents} == {
        "Kustomization",
        "Pod",
        "ResourceClaimTemplate",
    }
    classes = {each["metadata"]["name"] for each in of_kind("DeviceClass", manifests.base())}
    for document in documents:
        if document["kind"] == "ResourceClaimTemplate":
            _check_devices(document["spec"]["spec"]["devices"], classes)
        if document["kind"] == "Kustomization":
            for path in (*document["resources"], *document["components"]):
                assert (ROOT / path.removeprefix("../") / "kustomization.yaml").exists()


def test_readme_shows_a_simulated_node_that_is_valid(tmp_path: Path) -> None:
    (block,) = [each for each in _blocks("yaml") if each.startswith("driverVersion:")]
    file = tmp_path / "node.yaml"
    file.write_text(block)
    simulated = SimulationFile(file, node_name="node-a")
    simulated.close()


def test_readme_lists_all_examples() -> None:
    _, _, table = README.partition("| file of `manifests/examples` |")
    listed = re.findall(r"`([\w-]+)\.yaml`", table.partition("\n\n")[0])
    assert sorted(listed) == [path.stem for path in manifests.EXAMPLES]


def _check_devices(devices: Mapping[str, Any], classes: set[str]) -> None:
    names = [request["name"] for request in devices["requests"]]
    for request in devices["requests"]:
        assert request["exactly"]["deviceClassName"] in classes
    for config in devices.get("config", ()):
        assert set(config["requests"]) <= set(names)
        decode(config["opaque"]["parameters"], path="README")


def test_repository_names_no_folder_of_a_machine() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    places = re.compile(r"(?<![\w.$}/])/(?:root/\.|work/|Users/|home/\w+/|opt/wheels)")
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in filter(None, listed.stdout.split("\0"))
        for number, line in enumerate(_lines(ROOT / name), start=1)
        if places.search(line)
    ]
    assert not found, "\n".join(found)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return []
