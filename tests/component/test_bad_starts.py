"""What the process says, and leaves behind, when it is started with something impossible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.plan.naming import spec_prefix
from tests import builders
from tests.component.node_rig import NodeRig, node_rig, simulation

Arrange = Callable[[NodeRig], dict[str, str]]


def _flag(name: str, value: str) -> Arrange:
    return lambda _: {name: value}


def _file_in_the_way(flag: str) -> Arrange:
    def arrange(rig: NodeRig) -> dict[str, str]:
        (rig.root / "occupied").write_text("somebody else's")
        return {flag: str(rig.root / "occupied" / "below")}

    return arrange


def _simulation(text: str) -> Arrange:
    def arrange(rig: NodeRig) -> dict[str, str]:
        rig.simulation.write_text(text)
        return {}

    return arrange


def _kubeconfig(text: str) -> Arrange:
    def arrange(rig: NodeRig) -> dict[str, str]:
        file = rig.root / "broken-kubeconfig"
        file.write_text(text)
        return {"kubeconfig": str(file)}

    return arrange


SETTINGS: dict[str, tuple[Arrange, tuple[str, ...]]] = {
    "driver name": (_flag("driver-name", "GPU Slice"), ("--driver-name", "'GPU Slice'")),
    "relative folder": (_flag("cdi-root", "cdi"), ("--cdi-root", "'cdi'", "absolute")),
    "mode": (_flag("publish-mode", "fast"), ("--publish-mode", "'fast'", "consumable")),
    "layout": (_flag("static-layout", "5x25"), ("--static-layout", "5x25", "125")),
    "endpoint": (_flag("http-endpoint", "8080"), ("--http-endpoint", "8080")),
    "no such simulation": (
        _flag("simulate", "/nowhere/node.yaml"),
        ("--simulate", "/nowhere/node.yaml", "8xh100-80gb"),
    ),
    "unknown field": (
        _simulation(simulation() + "colour: green\n"),
        ("--simulate", "node.yaml", "colour"),
    ),
    "unknown profile": (
        _simulation("gpus:\n- {uuid: GPU-1, profile: voodoo}\n"),
        ("--simulate", "gpus[0].profile", "voodoo", "h100-80gb-sxm"),
    ),
    "deep YAML": (_simulation("[" * 5000), ("--simulate", "node.yaml", "recursion")),
    "no YAML": (_simulation("gpus: ["), ("--simulate", "node.yaml", "line")),
    "no kubeconfig": (
        _flag("kubeconfig", "/nowhere/kubeconfig"),
        ("--kubeconfig", "/nowhere/kubeconfig"),
    ),
    "no way to the API server": (_flag("kubeconfig", ""), ("--kubeconfig", "service account")),
    "broken kubeconfig": (_kubeconfig("clusters: 7"), ("--kubeconfig", "broken-kubeconfig")),
    "long path": (
        lambda rig: {"kubelet-plugins-directory-path": str(rig.root / ("x" * 90))},
        ("--kubelet-plugins-directory-path", "107"),
    ),
}


@pytest.mark.parametrize(("arrange", "words"), SETTINGS.values(), ids=SETTINGS)
def test_plugin_ends_with_status_2_when_a_setting_is_impossible(
    root: Path, arrange: Arrange, words: tuple[str, ...]
) -> None:
    with node_rig(root, simulation=simulation()) as rig:
        flags = arrange(rig)
        with rig.plugin(**flags) as plugin:
            assert plugin.wait() == 2
        (sentence,) = _sentences(plugin.log)
        assert all(word in sentence for word in words), sentence
        assert list(rig.kubelet.plugins_folder.iterdir()) == []
        assert "Serving" not in plugin.log
        _assert_nothing_is_left(rig)


def test_plugin_lists_settings_that_are_malformed_beside_those_that_are_impossible(
    root: Path,
) -> None:
    with node_rig(root, simulation=simulation()) as rig:
        flags = {
            "publish-mode": "fast",
            "static-layout": "5x25",
            "simulate": "/nowhere/node.yaml",
            "kubeconfig": "/nowhere/kubeconfig",
            "kubelet-plugins-directory-path": str(root / ("x" * 90)),
        }
        with rig.plugin(**flags) as plugin:
            assert plugin.wait() == 2
        sentences = _sentences(plugin.log)
        assert len(sentences) == len(flags)
        assert all(f"--{name}" in "".join(sentences) for name in flags)
        _assert_nothing_is_left(rig)


FATAL: dict[str, tuple[Arrange, tuple[str, ...]]] = {
    "state": (_file_in_the_way("state-dir"), ("--state-dir", "occupied")),
    "CDI": (_file_in_the_way("cdi-root"), ("--cdi-root", "occupied", "name another folder")),
    "read-only": (_flag("cdi-root", "/sys/cdi"), ("--cdi-root", "/sys/cdi")),
    "run": (_file_in_the_way("run-dir"), ("--run-dir", "occupied")),
    "plugins": (_file_in_the_way("kubelet-plugins-directory-path"), ("occupied",)),
    "port": (_flag("http-endpoint", "192.0.2.1:80"), ("192.0.2.1:80", "--http-endpoint")),
}


@pytest.mark.parametrize(("arrange", "words"), FATAL.values(), ids=FATAL)
def test_plugin_ends_with_status_1_when_it_cannot_do_its_work(
    root: Path, arrange: Arrange, words: tuple[str, ...]
) -> None:
    with node_rig(root, simulation=simulation()) as rig:
        flags = arrange(rig)
        with rig.plugin(**flags) as plugin:
            assert plugin.wait() == 1
        (sentence,) = _sentences(plugin.log)
        assert all(word in sentence for word in words), sentence
        assert "Traceback" not in plugin.log
        assert "Ready for claims" not in plugin.log
        assert list(rig.root.rglob("*.sock")) == []
        assert rig.slices() == ()


def test_plugin_names_every_folder_that_it_cannot_write(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig:
        (root / "occupied").write_text("somebody else's")
        flags = {name: f"{root}/occupied/{name}" for name in ("cdi-root", "state-dir", "run-dir")}
        with rig.plugin(**flags) as plugin:
            assert plugin.wait() == 1
        sentences = _sentences(plugin.log)
        assert len(sentences) == len(flags)
        assert all(f"(--{name})" in "".join(sentences) for name in flags)


def test_plugin_starts_beside_what_an_earlier_start_left_in_its_folders(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig:
        left = root / "run" / f".{spec_prefix(builders.DRIVER)}start.1-0.tmp"
        left.parent.mkdir()
        left.touch()
        with rig.plugin() as plugin:
            rig.wait_ready()
            assert plugin.stop() == 0
        assert not left.exists()
        assert (root / "run/claims").is_dir()


def test_plugin_leaves_a_journal_from_the_future_alone(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig:
        with rig.plugin() as plugin:
            rig.wait_ready()
            claim = rig.allocate(1, [builders.share_result(rig.gpus()[0])])
            rig.kubelet.prepare("pod", [claim])
            assert plugin.stop() == 0
        (entry,) = (rig.state / "claims").iterdir()
        future = entry.read_text().replace("/v1", "/v99")
        assert "/v99" in future
        entry.write_text(future)
        specs = rig.specs()
        with rig.plugin() as newer:
            rig.kubelet.restart()
            rig.wait_ready()
            with pytest.raises(Exception, match="newer") as caught:
                rig.kubelet.unprepare("pod")
            assert "v99" in str(caught.value)
            assert newer.stop() == 0
        assert (entry.read_text(), rig.specs()) == (future, specs)


def _sentences(log: str) -> list[str]:
    """What is said to people, apart from the log's own lines."""
    return [line for line in log.splitlines() if line.startswith("gpuslice: ")]


def _assert_nothing_is_left(rig: NodeRig) -> None:
    left = [path for path in rig.root.rglob("*") if path.suffix in {".sock", ".lock", ".json"}]
    assert left == []
    assert rig.slices() == ()
