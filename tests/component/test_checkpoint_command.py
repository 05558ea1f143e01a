"""A person takes a checkpoint."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest

from dra_driver.app.checkpoint_command import checkpoint
from dra_driver.app.checkpoint_values import CheckpointWish
from tests.component.people import Site, run, site
from tests.fakes.people_cluster import plugin_pod, pod_json
from tests.fakes.people_node import operation

__all__ = ["run", "site"]

MPS = "FAILED_PRECONDITION: shares under MPS cannot be checkpointed"
PATH = "/api/v1/nodes/node-a/proxy/checkpoint/team/trainer/main"


def test_checkpoint_is_asked_of_the_pods_kubelet_and_its_next_step_is_told(site: Site) -> None:
    site.node.operations.append(operation())
    ended = site.ask("checkpoint", "trainer", "--timeout", "7")
    assert ended.status == 0
    assert site.cluster.asked == [f"{PATH}?timeout=7"]
    lines = dict(line.split(maxsplit=1) for line in ended.out.splitlines())
    assert lines == {
        "archive": f"{site.archive} on node node-a",
        "operation": "op-1, done",
        "restore": f"gpuslice restore {site.archive} --node node-a --import --operation op-1",
    }
    assert "checkpointing container main of pod team/trainer on node node-a" in ended.err
    # Nothing but the list of operations was asked of the plugin.
    assert {method for method, _ in site.node.calls} == {"ListOperations"}


def test_checkpoint_prints_the_same_as_json(site: Site) -> None:
    site.node.operations.append(operation())
    found = json.loads(site.ask("checkpoint", "trainer", "--json").out)
    assert found["archive"] == str(site.archive)
    assert found["operation"]["operationId"] == "op-1"
    assert (found["node"], found["failure"], found["file"]) == ("node-a", "", None)


def test_checkpoint_of_a_pod_without_claims_asks_no_plugin(site: Site) -> None:
    site.cluster.pods = [pod_json(claims=False)]
    ended = site.ask("checkpoint", "trainer")
    assert ended.status == 0
    assert "operation" not in ended.out
    assert "note" not in ended.err


def test_checkpoint_goes_without_the_right_to_run_commands(site: Site) -> None:
    site.cluster.denied.add("pods/exec")
    ended = site.ask("checkpoint", "trainer")
    assert ended.status == 0
    assert f"archive    {site.archive}" in ended.out
    assert "note: the operation on the node is not known: you may not run commands" in ended.err
    assert "gpuslice-plugin-exec" in ended.err


def test_checkpoint_takes_the_container_that_is_named(site: Site) -> None:
    site.cluster.pods = [pod_json(containers=("main", "side"), claims=False)]
    ended = site.ask("checkpoint", "trainer")
    assert ended.status == 2
    assert (
        "--container is not set: pod team/trainer has several; give one of main, side" in ended.err
    )
    ended = site.ask("checkpoint", "trainer", "-c", "other")
    assert ended.status == 2
    assert "--container is 'other': pod team/trainer has no such container" in ended.err
    assert site.cluster.asked == []
    assert site.ask("checkpoint", "trainer", "-c", "side").status == 0
    assert urlsplit(site.cluster.asked[0]).path.endswith("/trainer/side")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"node": ""}, "pod team/trainer is on no node yet"),
        ({"state": "waiting"}, "container main of pod team/trainer does not run (waiting)"),
        ({"name": "other"}, "there is no pod team/trainer: give --namespace"),
    ],
)
def test_checkpoint_of_what_does_not_run_is_not_asked_for(
    site: Site, change: dict[str, str], text: str
) -> None:
    site.cluster.pods = [pod_json(**change)]  # type: ignore[arg-type]
    ended = site.ask("checkpoint", "trainer")
    assert (ended.status, ended.out) == (1, "")
    assert text in ended.err
    assert site.cluster.asked == []


@pytest.mark.parametrize(
    ("denied", "texts"),
    [
        ("nodes/proxy", ["'create nodes/proxy'", "ClusterRole gpuslice-checkpointer", "jane"]),
        ("pods", ["'get pods'", "ClusterRole gpuslice-checkpointer"]),
    ],
)
def test_checkpoint_names_the_right_that_is_missing(
    site: Site, denied: str, texts: list[str]
) -> None:
    site.cluster.denied.add(denied)
    ended = site.ask("checkpoint", "trainer")
    assert (ended.status, ended.out) == (1, "")
    for text in (*texts, "manifests/components/checkpoint-rights"):
        assert text in ended.err


def test_checkpoint_names_the_right_that_the_api_server_lacks(site: Site) -> None:
    site.cluster.answer = (403, "Forbidden (user=kube-apiserver, verb=create, resource=nodes)")
    ended = site.ask("checkpoint", "trainer")
    assert ended.status == 1
    assert "ClusterRole gpuslice-checkpoint (" in ended.err
    assert "'kube-apiserver'" in ended.err


def test_failed_checkpoint_tells_what_the_driver_refuses(site: Site) -> None:
    site.cluster.answer = (500, "checkpointing failed (criu failed: type NOTIFY errno 0)")
    site.node.refuse["PreCheckpoint"] = MPS
    ended = site.ask("checkpoint", "trainer")
    assert (ended.status, ended.out) == (1, "")
    assert "type NOTIFY" in ended.err
    assert MPS in ended.err
    (request,) = site.node.called("PreCheckpoint")
    assert request["dryRun"] is True
    assert request["target"]["podUid"] == "uid-trainer"


def test_failed_checkpoint_tells_how_its_operation_ended(site: Site) -> None:
    site.cluster.answer = (500, "checkpointing failed (criu failed)")
    site.node.operations.append(operation(state="FAILED_CLEAN", message="lock timed out"))
    ended = site.ask("checkpoint", "trainer")
    assert "the driver's last operation on it ended as failed clean: lock timed out" in ended.err


def test_checkpoint_that_hurt_its_container_is_a_failure(site: Site) -> None:
    site.node.operations.append(operation(state="FAILED_UNHEALTHY", message="unlock failed"))
    ended = site.ask("checkpoint", "trainer")
    assert ended.status == 1
    assert f"archive    {site.archive}" in ended.out
    assert "restore" not in ended.out
    assert "its operation ended as failed unhealthy: unlock failed" in ended.err


@pytest.mark.parametrize("timeout", ["0", "-1", "3601"])
def test_checkpoint_refuses_a_bad_timeout(site: Site, timeout: str) -> None:
    ended = site.ask("checkpoint", "trainer", "--timeout", timeout)
    assert ended.status == 2
    assert ended.err == f"gpuslice: --timeout is {timeout}: give seconds from 1 to 3600\n"


def test_driver_takes_the_processes_off_before_and_hears_of_the_end(site: Site) -> None:
    ended = site.ask("checkpoint", "trainer", "--driver-owned")
    assert ended.status == 0
    before, after = site.node.called("PreCheckpoint"), site.node.called("PostCheckpoint")
    assert before[0]["gpuOwner"] == "GPU_OWNER_DRIVER"
    assert before[0]["leaseSeconds"] > 60
    assert after == [
        {"operationId": before[0]["operationId"], "outcome": "OUTCOME_SUCCEEDED", "message": ""}
    ]


def test_driver_hears_that_gpu_state_is_not_needed(site: Site) -> None:
    assert site.ask("checkpoint", "trainer", "--host-only").status == 0
    (before,), (after,) = site.node.called("PreCheckpoint"), site.node.called("PostCheckpoint")
    assert before["acceptHostOnly"] is True
    assert "gpuOwner" not in before
    assert after["operationId"] == before["operationId"]
    ended = site.ask("checkpoint", "trainer", "--host-only", "--driver-owned")
    assert ended.status == 2
    assert "exclude each other" in ended.err


def test_driver_hears_of_a_failure(site: Site) -> None:
    site.cluster.answer = (500, "criu failed")
    assert site.ask("checkpoint", "trainer", "--driver-owned").status == 1
    (after,) = site.node.called("PostCheckpoint")
    assert after["outcome"] == "OUTCOME_FAILED"
    assert "criu failed" in after["message"]


class Impatient:
    """Goes away at a step."""

    def __init__(self, step: str) -> None:
        self._step = step

    def step(self, text: str) -> None:
        if text.startswith(self._step):
            raise KeyboardInterrupt

    def amount(self, done_bytes: int, total_bytes: int) -> None:
        pass


def test_driver_hears_of_a_person_who_goes_away(site: Site) -> None:
    kubeconfig = site.cluster.kubeconfig(site.folder)
    wish = CheckpointWish(pod="trainer", driver_owned=True, kubeconfig=kubeconfig)
    with pytest.raises(KeyboardInterrupt):
        checkpoint(wish, Impatient("checkpointing"))
    (after,) = site.node.called("PostCheckpoint")
    assert after["outcome"] == "OUTCOME_UNKNOWN"


def test_operation_is_undone_when_a_person_goes_away_while_it_begins(site: Site) -> None:
    kubeconfig = site.cluster.kubeconfig(site.folder)
    wish = CheckpointWish(pod="trainer", driver_owned=True, kubeconfig=kubeconfig)
    with pytest.raises(KeyboardInterrupt):
        checkpoint(wish, Impatient("letting the driver"))
    (undone,) = site.node.called("Abort")
    assert undone["operationId"].startswith("cli-")


def test_driver_that_refuses_is_obeyed(site: Site) -> None:
    site.node.refuse["PreCheckpoint"] = MPS
    ended = site.ask("checkpoint", "trainer", "--driver-owned")
    assert (ended.status, ended.out) == (1, "")
    assert f"on node node-a: PreCheckpoint was refused: {MPS}" in ended.err
    assert site.cluster.asked == []


def test_archive_is_fetched_whole_and_for_its_owner_alone(site: Site) -> None:
    target = site.folder / "a.tar"
    ended = site.ask("checkpoint", "trainer", "-o", str(target))
    assert ended.status == 0
    assert f"copy       {target}" in ended.out
    assert target.read_bytes() == site.archive.read_bytes()
    assert target.stat().st_mode & 0o777 == 0o600
    assert "100 %" in ended.err
    assert site.files() == {"a.tar"}


@pytest.mark.parametrize(
    "spoil", [lambda content: content[:-1], lambda content: b"x" + content[1:]]
)
def test_archive_that_does_not_arrive_as_it_is_leaves_nothing(site: Site, spoil: object) -> None:
    site.node.spoil = spoil  # type: ignore[assignment]
    ended = site.ask("checkpoint", "trainer", "-o", str(site.folder / "a.tar"))
    assert (ended.status, ended.out) == (1, "")
    assert f"the checkpoint is {site.archive} on node node-a, and was not fetched" in ended.err
    assert site.files() == set()


def test_archive_that_could_not_be_fetched_is_not_made(site: Site) -> None:
    output = ("-o", str(site.folder / "a.tar"))
    site.archive.unlink()
    site.node.checkpoints.rmdir()
    ended = site.ask("checkpoint", "trainer", *output)
    assert "add the component checkpoint-archives" in ended.err
    site.cluster.denied.add("pods/exec")
    assert "'create pods/exec'" in site.ask("checkpoint", "trainer", *output).err
    site.cluster.denied.add("pods/list")
    assert "'list pods'" in site.ask("checkpoint", "trainer", *output).err
    site.cluster.denied.clear()
    site.cluster.pods = [pod_json(), plugin_pod("node-b")]
    assert "no plugin's pod runs on node node-a" in site.ask("checkpoint", "trainer", *output).err
    assert site.cluster.asked == []
    assert site.files() == set()


@pytest.mark.parametrize(
    ("name", "text"),
    [("there", "it exists; name a new file"), ("none/a.tar", "cannot write there: No such file")],
)
def test_archive_is_never_written_over_a_file(site: Site, name: str, text: str) -> None:
    (site.folder / "there").write_text("precious")
    ended = site.ask("checkpoint", "trainer", "-o", str(site.folder / name))
    assert (ended.status, ended.out) == (2, "")
    assert text in ended.err
    assert site.cluster.asked == []
    assert (site.folder / "there").read_text() == "precious"
