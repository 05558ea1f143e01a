"""What the opt-in parts of checkpoints make of the driver's manifests, built as by kubectl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dra_driver.settings import Settings, load
from tests import manifests
from tests.api.manifest_builds import build, overlay

HOOK_MOUNTS = {"/host/etc/criu", "/host/opt/gpuslice"}
CHECKPOINTS = "/var/lib/kubelet/checkpoints"

each_resource = pytest.mark.parametrize("resource", ["base", "overlays/simulated"])


def plugin(kubectl: Path, folder: Path, resource: str, *components: str) -> tuple[Any, Any]:
    """The plugin's container and its pod's spec."""
    documents = build(kubectl, overlay(folder, resource=resource, components=components))
    pod = manifests.pod_spec(manifests.component_of(documents, "plugin"))
    (container,) = pod["containers"]
    return container, pod


def mounts(container: Any, pod: Any) -> dict[str, tuple[str, bool]]:
    """Host path of each mount, and whether it is written."""
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert len(volumes) == len(pod["volumes"])
    return {
        each["mountPath"]: (
            volumes[each["name"]].get("hostPath", {}).get("path", ""),
            not each.get("readOnly", False),
        )
        for each in container["volumeMounts"]
    }


def settings(container: Any, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What a command in the container finds, which is given no flag."""
    for each in container["env"]:
        if each["name"].startswith("GPUSLICE_") and each["name"] != "GPUSLICE_CONFIG":
            monkeypatch.setenv(each["name"], each["value"])
    return load({})


@each_resource
def test_hook_writes_to_two_folders_of_the_host_alone(
    kubectl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:
    before = mounts(*plugin(kubectl, tmp_path / "plain", resource))
    container, pod = plugin(kubectl, tmp_path / "hook", resource, "checkpoint-hook")
    after = mounts(container, pod)
    assert after["/host"] == ("/", False)
    assert set(after) - set(before) - {"/host"} == HOOK_MOUNTS
    found = settings(container, monkeypatch)
    assert found.checkpoint_hook
    for path in HOOK_MOUNTS:
        assert after[path] == (f"/{Path(path).relative_to(found.host_root)}", True)
    target = found.host_root / found.hook_path.relative_to("/")
    assert target.is_relative_to("/host/opt/gpuslice")


@each_resource
def test_hook_is_taken_out_by_what_could_put_it_in(
    kubectl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:
    on = plugin(kubectl, tmp_path / "on", resource, "checkpoint-hook")
    container, pod = plugin(kubectl, tmp_path / "off", resource, "checkpoint-hook-off")
    assert mounts(container, pod) == mounts(*on)
    assert not settings(container, monkeypatch).checkpoint_hook


@each_resource
def test_archives_are_read_only_and_where_the_kubelet_says(
    kubectl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:
    container, pod = plugin(kubectl, tmp_path, resource, "checkpoint-archives", "checkpoint-hook")
    found = mounts(container, pod)
    assert found[CHECKPOINTS] == (CHECKPOINTS, False)
    assert found["/host"] == ("/", False)
    assert str(settings(container, monkeypatch).checkpoints_dir) == CHECKPOINTS


def test_commands_in_the_pod_read_the_settings_of_the_plugin(kubectl: Path, tmp_path: Path) -> None:
    for component in ("checkpoint-hook", "checkpoint-archives"):
        container, _ = plugin(kubectl, tmp_path / component, "base", component)
        (config,) = (each for each in container["args"] if each.startswith("--config="))
        assert {"name": "GPUSLICE_CONFIG", "value": config.partition("=")[2]} in container["env"]
