"""Copies of the manifests for another driver name and another folder of the kubelet."""

from __future__ import annotations

import filecmp
import subprocess
from pathlib import Path

import pytest

from tests import manifests
from tests.arch.sources import ROOT
from tests.manifests import FOLDER, of_kind

NAME = "gpu.example.com"
KUBELET = "/var/lib/k0s/kubelet"


def render(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "hack/render"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def files(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def test_render_copies_what_is_shipped_when_nothing_is_given(tmp_path: Path) -> None:
    target = tmp_path / "new" / "copy"
    done = render(target)
    assert (done.returncode, done.stdout) == (0, f"{target}\n"), done.stderr
    names = [str(path) for path in files(FOLDER)]
    assert [str(path) for path in files(target)] == names
    assert filecmp.cmpfiles(FOLDER, target, names, shallow=False) == (names, [], [])


def test_render_puts_names_everywhere(tmp_path: Path) -> None:
    target = tmp_path / "copy"
    done = render("--driver-name", NAME, "--kubelet-root", KUBELET, target)
    assert done.returncode == 0, done.stderr
    for path in files(target):
        old = (FOLDER / path).read_text()
        new = (target / path).read_text()
        assert "/var/lib/kubelet" not in new
        assert new.count("gpuslice.io") == new.count("config.gpuslice.io")
        assert new.count("config.gpuslice.io") == old.count("config.gpuslice.io")
        back = new.replace(NAME, "gpuslice.io").replace(KUBELET, "/var/lib/kubelet")
        assert back == old
    classes = of_kind("DeviceClass", manifests.read(target / "base/deviceclasses.yaml"))
    assert all(each["metadata"]["name"].endswith(f".{NAME}") for each in classes)
    (plugin,) = manifests.pod_spec(*manifests.read(target / "base/daemonset.yaml"))["containers"]
    assert f"--driver-name={NAME}" in plugin["args"]
    assert f"--kubelet-plugins-directory-path={KUBELET}/plugins" in plugin["args"]
    assert f"{KUBELET}/plugins" in {each["mountPath"] for each in plugin["volumeMounts"]}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--driver-name", "Upper"], "--driver-name is 'Upper': give a DNS subdomain"),
        (["--driver-name", "a" * 28], "at most 27 characters"),
        (["--driver-name", "a/b"], "give a DNS subdomain"),
        (["--kubelet-root", "var/lib"], "--kubelet-root is 'var/lib': give an absolute path"),
        (["--kubelet-root", "/var/../etc"], "give an absolute path"),
        (["--kubelet-root", "/a#b"], "give an absolute path"),
        (["--unknown"], "unknown argument '--unknown'"),
    ],
)
def test_render_writes_nothing_when_an_argument_is_wrong(
    tmp_path: Path, arguments: list[str], text: str
) -> None:
    done = render(*arguments, tmp_path / "copy")
    assert done.returncode == 2
    assert text in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_render_leaves_a_folder_alone_that_exists(tmp_path: Path) -> None:
    done = render(tmp_path)
    assert done.returncode == 2
    assert f"'{tmp_path}' exists: name a new folder" in done.stderr
    assert list(tmp_path.iterdir()) == []
