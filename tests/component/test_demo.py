"""The demo as a newcomer starts it, and as scripts do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from dra_driver.app.demo_cluster import DemoCluster
from dra_driver.app.demo_node import PROFILE, demo_node
from dra_driver.app.demo_story import Story
from dra_driver.app.demo_values import DemoError
from dra_driver.app.demo_view import Silent
from dra_driver.plan.allocate_values import SchedulerRules
from dra_driver.sim.allocator import Allocator
from tests.waiting import eventually

COMMAND = [sys.executable, "-m", "dra_driver.app.demo"]
ANSWER_S = 60


@contextmanager
def _started(root: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The demo with its output in files and its folder below `root`."""
    with (root / "out").open("w") as out, (root / "err").open("w") as err:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=out,
            stderr=err,
            text=True,
            env=os.environ | {"TMPDIR": str(root)},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _left(root: Path) -> list[str]:
    return [path.name for path in root.iterdir() if path.name not in {"out", "err"}]


def _plugin_of(root: Path) -> int | None:
    found = re.search(r"runs as process (\d+)", (root / "out").read_text())
    return int(found[1]) if found else None


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_demo_tells_what_happened_and_leaves_nothing(root: Path) -> None:
    with _started(root) as demo:
        assert demo.wait(ANSWER_S) == 0, (root / "err").read_text()
    text = " ".join((root / "out").read_text().split())
    assert "All run: 20 jobs on GPU 0." in text
    assert "gets GPU 1 (6,144 MiB)." in text
    assert "gets GPU 2 (80,163 MiB): all of its memory" in text
    assert "while 5 are untouched" in text
    assert "FailedScheduling: 0/1 nodes are available: 1 cannot allocate all claims." in text
    assert 'field qos: "Garanteed" is not supported' in text
    assert "GPUSLICE_COMPUTE_PERCENT=25" in text
    assert "all 22 answers are the same as before" in text
    assert "Left: 0 claims, 0 CDI specs" in text
    assert (root / "err").read_text() == ""
    assert _left(root) == []


def test_demo_prints_json_alone_when_asked(root: Path) -> None:
    with _started(root, "--json") as demo:
        assert demo.wait(ANSWER_S) == 0, (root / "err").read_text()
    result = json.loads((root / "out").read_text())
    assert result["devices"] == {"gpu": 8, "monitor": 8}
    assert result["jobs"]["gpus"] == {"0": 20}
    assert result["crash"]["same"] == {"answers": True, "specs": True, "journal": True}
    assert result["cleanUp"]["pods"] == 22
    assert not any(result["cleanUp"]["left"].values())
    (share,) = result["claim"]["limits"]
    assert (share["computePercent"], share["memoryMib"]) == (25, 6144)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_demo_cleans_up_when_it_is_interrupted(root: Path, number: signal.Signals) -> None:
    with _started(root) as demo:
        plugin = eventually(lambda: _plugin_of(root), ANSWER_S, "the plugin runs")
        assert plugin is not None
        demo.send_signal(number)
        assert demo.wait(ANSWER_S) == 130
    assert not _alive(plugin)
    assert _left(root) == []
    assert (root / "err").read_text() == "demo: interrupted; everything was cleaned up\n"


def test_demo_follows_pods_when_it_is_kept(root: Path) -> None:
    with _started(root, "--keep") as demo:
        eventually(lambda: "The plugin's log" in (root / "out").read_text(), ANSWER_S, "it stays")
        found = re.search(r"http://127.0.0.1:\d+(?=/apis)", (root / "out").read_text())
        assert found is not None
        claims = f"{found[0]}/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
        assert len(_get(claims)["items"]) == 22
        _post(f"{found[0]}/api/v1/namespaces/default/pods", _pod("more", "quarter"))
        _post(f"{found[0]}/api/v1/namespaces/default/pods", _pod("lost", "nowhere"))
        eventually(lambda: "lost: " in (root / "out").read_text(), ANSWER_S, "it follows")
        text = (root / "out").read_text()
        assert "more: Running" in text
        assert "FailedResourceClaimCreation" in text
        assert "nowhere" in text.split("lost: ")[1]
        assert len(_get(claims)["items"]) == 23
        demo.send_signal(signal.SIGINT)
        assert demo.wait(ANSWER_S) == 0, (root / "err").read_text()
    assert "24 pods were deleted" in (root / "out").read_text()
    assert _left(root) == []


def test_story_fails_with_a_reason_when_a_pod_does_not_run() -> None:
    with demo_node() as node:
        allocator = Allocator(SchedulerRules(minor=PROFILE.minor))
        cluster = DemoCluster(node.api, node.kubelet, allocator)
        story = Story(node, cluster, Silent())
        story.start()
        story.show_slices()
        node.kill_plugin()
        with pytest.raises(DemoError, match="pod job-01 does not run: FailedPrepare"):
            story.run_jobs()
    assert not node.root.exists()


def test_story_fails_with_the_log_when_the_plugin_ends() -> None:
    with demo_node() as node:
        node.simulation.write_text("gpus: 8")
        cluster = DemoCluster(node.api, node.kubelet, Allocator(SchedulerRules(minor=37)))
        with pytest.raises(DemoError, match="the plugin ended with status 2 before"):
            Story(node, cluster, Silent()).start()


def _pod(name: str, template: str) -> bytes:
    claim = {"name": "gpu", "resourceClaimTemplateName": template}
    return json.dumps({"metadata": {"name": name}, "spec": {"resourceClaims": [claim]}}).encode()


def _get(url: str) -> dict[str, list[object]]:
    with urlopen(url, timeout=5) as answer:
        found: dict[str, list[object]] = json.load(answer)
        return found


def _post(url: str, body: bytes) -> None:
    with urlopen(url, data=body, timeout=5) as answer:
        assert answer.status == 201
