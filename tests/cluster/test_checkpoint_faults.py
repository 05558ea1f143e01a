"""What the runtime makes of checkpoints and restores that fail, without the driver's hook."""

import grpc
import pytest

from dra_driver.model.cuda import CudaState
from tests.cluster.checkpoint_cuda import CudaPlugin, start_with_cuda
from tests.cluster.checkpoint_runtime import (
    checkpoint_until,
    resume,
    wait_at_work,
    wait_paused,
)
from tests.cluster.checkpoint_script import ActionScript
from tests.cluster.checkpoint_site import Checkpoints, counting, restored_from
from tests.cluster.life_site import Tenant
from tests.kube.client import ApiError

SAVED = ("lock", "checkpoint")
BACK = ("restore", "unlock")

_CONNECT = """
sleep 1000 | nc -l -p 5000 -e cat &
until netstat -tn | grep -q ESTABLISHED; do sleep 1000 | nc 127.0.0.1 5000 & sleep 0.2; done
"""


def test_pod_runs_on_when_its_dump_fails_after_the_first_action(
    checkpoints: Checkpoints, script: ActionScript
) -> None:
    checkpoints.site.create("source", **counting(first=_CONNECT))
    source = checkpoints.counting("source")
    with pytest.raises(ApiError, match="criu failed"):
        checkpoints.take("source")
    assert script.actions() == ("pre-dump", "network-lock", "network-unlock")
    wait_at_work(checkpoints.site.cluster, source)


def test_container_stays_paused_when_time_is_up_during_an_action(
    checkpoints: Checkpoints, script: ActionScript
) -> None:
    """The reason why the driver never lets an action wait for long."""
    cluster = checkpoints.site.cluster
    source = checkpoints.start_counting("source")
    with script.hanging("pre-dump"), pytest.raises(grpc.RpcError) as caught:
        checkpoint_until(cluster, source, deadline_s=1.0)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_paused(cluster, source)
    resume(cluster, source)
    wait_at_work(cluster, source)


def test_cuda_state_is_back_when_a_pod_runs_on_after_its_checkpoint_and_its_restore(
    checkpoints: Checkpoints, cuda: CudaPlugin
) -> None:
    source, restored = _restored(checkpoints, cuda)
    assert cuda.transitions(source) == (*SAVED, *BACK)
    assert cuda.transitions(restored) == BACK
    assert cuda.state(restored) is CudaState.RUNNING


@pytest.mark.parametrize(
    ("action", "asked", "left"),
    [
        ("lock", ("lock",), CudaState.RUNNING),
        # The plugin restores what was never saved, and leaves it at that.
        ("checkpoint", (*SAVED, "restore"), CudaState.LOCKED),
    ],
)
def test_pod_runs_on_when_its_cuda_state_cannot_be_saved(
    checkpoints: Checkpoints,
    cuda: CudaPlugin,
    action: str,
    asked: tuple[str, ...],
    left: CudaState,
) -> None:
    source = start_with_cuda(checkpoints, "source")
    cuda.fail(action)
    with pytest.raises(ApiError, match="criu failed"):
        checkpoints.take("source")
    wait_at_work(checkpoints.site.cluster, source)
    assert cuda.transitions(source) == asked
    assert cuda.state(source) is left


def test_restored_pod_runs_without_its_cuda_state_when_that_does_not_come_back(
    checkpoints: Checkpoints, cuda: CudaPlugin
) -> None:
    """Nobody tells of this failure: the reason why the driver looks after a restore."""
    _, restored = _restored(checkpoints, cuda, failing="restore")
    assert cuda.transitions(restored) == ("restore",)
    assert cuda.state(restored) is CudaState.CHECKPOINTED


def _restored(
    checkpoints: Checkpoints, cuda: CudaPlugin, *, failing: str = ""
) -> tuple[Tenant, Tenant]:
    """Restore a pod after its end, while an action fails; gives it and its source."""
    site = checkpoints.site
    source = start_with_cuda(checkpoints, "source")
    archive = checkpoints.take("source")
    wait_at_work(site.cluster, source)
    assert cuda.state(source) is CudaState.RUNNING
    site.delete("source")
    site.wait_gone("source")
    if failing:
        cuda.fail(failing)
    site.create("restored", **restored_from(checkpoints.image(archive)))
    restored = checkpoints.counting("restored")
    wait_at_work(site.cluster, restored)
    return source, restored
