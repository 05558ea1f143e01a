"""Checkpoints and restores that the kubelet starts, with the driver's hook."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dra_driver.model.cuda import CudaState
from tests.cluster import deployed
from tests.cluster.checkpoint_cuda import CudaPlugin, start_with_cuda
from tests.cluster.checkpoint_hook import (
    API_VERSION,
    CHECKPOINT,
    RESTORE,
    Hook,
    gpu_of,
    gpus,
    state_of,
    with_config,
)
from tests.cluster.checkpoint_runtime import wait_at_work
from tests.cluster.checkpoint_script import ActionScript
from tests.cluster.checkpoint_site import Checkpoints, Count, counting, restored_from
from tests.cluster.life_plugin import plugin_container, renew_plugin
from tests.cluster.life_processes import kill
from tests.cluster.life_site import WHOLE, Site, part
from tests.kube.client import ApiError, Json
from tests.kube.process import wait_until

POSSIBLE = with_config(WHOLE, checkpoint="Required")


def test_driver_sees_the_checkpoint_of_a_gpu_pod_and_restores_it_on_the_same_gpu(
    checkpoints: Checkpoints, hook: Hook
) -> None:
    site = checkpoints.site
    source = checkpoints.start_counting("source", POSSIBLE)
    claim = site.claim_of("source")["metadata"]
    counted = Count.of(source)
    archive = checkpoints.take("source")
    wait_at_work(site.cluster, source)
    site.unchanged(source)
    operation = hook.ended(source)
    assert state_of(operation) == "DONE"
    target = operation["target"]
    assert (target["podNamespace"], target["podName"]) == (site.namespace, "source")
    assert (target["podUid"], target["containerName"]) == (source.uid, "main")
    assert [each["uid"] for each in operation["claims"]] == [claim["uid"]]

    same = with_config(WHOLE, gpu=gpu_of(source), restoreFrom=operation["operationId"])
    site.create("restored", same, **restored_from(checkpoints.image(archive)))
    site.wait_event("restored", "FailedScheduling")
    assert site.phase("restored") == "Pending"
    site.delete("source")
    restored = checkpoints.counting("restored")
    goes_on = Count.of(restored)
    assert goes_on.process == counted.process
    assert goes_on.number >= counted.number
    wait_at_work(site.cluster, restored)
    operation = hook.ended(restored, RESTORE)
    assert state_of(operation) == "DONE"
    assert operation["target"]["podUid"] == restored.uid


def test_claim_of_another_gpu_is_refused_when_it_is_to_restore_a_checkpoint(
    checkpoints: Checkpoints, hook: Hook
) -> None:
    site = checkpoints.site
    source = checkpoints.start_counting("source", POSSIBLE)
    image = checkpoints.image(checkpoints.take("source"))
    checkpoint = hook.ended(source)["operationId"]
    other = next(gpu for gpu in gpus(site.cluster) if gpu != gpu_of(source))
    request = with_config(WHOLE, gpu=other, restoreFrom=checkpoint)
    site.create("restored", request, **restored_from(image))
    site.wait_event("restored", "FailedPrepareDynamicResources", gpu_of(source), other)
    assert site.phase("restored") == "Pending"


def test_share_under_mps_runs_on_when_its_checkpoint_is_refused(
    checkpoints: Checkpoints, hook: Hook
) -> None:
    config = {"apiVersion": API_VERSION, "kind": "SliceConfig", "checkpoint": "BestEffort"}
    share = checkpoints.start_counting("share", {**part(25, "6Gi"), "config": config})
    with pytest.raises(ApiError, match="criu failed"):
        checkpoints.take("share")
    checkpoints.site.wait_event("share", "MPS", "cannot be checkpointed")
    wait_at_work(checkpoints.site.cluster, share)
    checkpoints.site.unchanged(share)
    assert checkpoints.archives() == frozenset()


def test_init_container_runs_on_when_a_claim_that_the_kubelet_lists_nowhere_forbids_its_checkpoint(
    checkpoints: Checkpoints, hook: Hook
) -> None:
    """The mark of the later claim hides the first one, and the kubelet lists no such containers."""
    site = checkpoints.site

    def begin_with_main(pod: Json) -> None:
        (main,) = pod["spec"]["containers"]
        claims = main["resources"]["claims"]
        pod["spec"]["initContainers"] = [main]
        pod["spec"]["containers"] = [
            {**main, "name": "then", "resources": {"claims": claims[1:]}},
        ]

    forbidden = with_config(WHOLE, checkpoint="None")
    site.create("source", forbidden, POSSIBLE, change=begin_with_main, **counting())
    container = site.wait_init_container("source")
    with pytest.raises(ApiError, match="criu failed"):
        checkpoints.take("source")
    site.wait_event("source", str(site.claim_of("source")["metadata"]["name"]), "no checkpoints")
    assert hook.operations_on(container, CHECKPOINT) == []
    assert site.wait_init_container("source") == container
    assert checkpoints.archives() == frozenset()


def test_pods_are_checkpointed_without_the_driver_unless_they_have_a_gpu(
    checkpoints: Checkpoints, hook: Hook
) -> None:
    plain = checkpoints.start_counting("plain")
    gpu = checkpoints.start_counting("gpu", POSSIBLE)
    checkpoints.take("plain")
    assert hook.operations(plain) == []
    with hook.away():
        checkpoints.take("plain")
        with pytest.raises(ApiError, match="criu failed"):
            checkpoints.take("gpu")
        for tenant in (plain, gpu):
            wait_at_work(checkpoints.site.cluster, tenant)


def test_gpu_pods_start_while_the_plugin_is_rolled(checkpoints: Checkpoints, hook: Hook) -> None:
    hook.roll()
    for number in range(4):
        checkpoints.start_counting(f"pod-{number}", POSSIBLE)


@pytest.mark.parametrize("action", ["pre-dump", "network-lock", "post-dump", "network-unlock"])
def test_operation_ends_when_the_plugin_is_killed_during_an_action(
    checkpoints: Checkpoints, hook: Hook, other_script: ActionScript, action: str
) -> None:
    cluster = checkpoints.site.cluster
    renew_plugin(cluster)
    source = checkpoints.start_counting("source", POSSIBLE)
    with ThreadPoolExecutor() as caller:
        with other_script.hanging(action):
            taken = caller.submit(checkpoints.take, "source")
            wait_until(
                lambda: "" if action in other_script.actions() else str(other_script.actions()),
                waiting_for=f"action {action}",
            )
            kill(cluster, plugin_container(cluster))
        # Only the first action asks for permission.
        if action == "pre-dump":
            with pytest.raises(ApiError, match="criu failed"):
                taken.result()
        else:
            taken.result()
    wait_at_work(cluster, source)
    deployed.wait_deployed(cluster)
    if action != "pre-dump":
        assert hook.ended(source)["remainingSeconds"] == 0


def test_operation_ends_clean_when_another_script_refuses_the_checkpoint(
    checkpoints: Checkpoints, hook: Hook, other_script: ActionScript
) -> None:
    source = checkpoints.start_counting("source", POSSIBLE)
    with other_script.refusing("network-lock"), pytest.raises(ApiError, match="criu failed"):
        checkpoints.take("source")
    assert state_of(hook.ended(source)) == "FAILED_CLEAN"
    wait_at_work(checkpoints.site.cluster, source)


def test_source_is_let_go_when_another_script_refuses_the_dump_that_was_taken(
    checkpoints: Checkpoints, hook: Hook, other_script: ActionScript
) -> None:
    """CRIU calls all scripts in both cases alike: what another one says, the driver cannot hear."""
    source = checkpoints.start_counting("source", POSSIBLE)
    with other_script.refusing("post-dump"), pytest.raises(ApiError, match="criu failed"):
        checkpoints.take("source")
    assert checkpoints.archives() == frozenset()
    assert state_of(hook.ended(source)) == "DONE"
    wait_at_work(checkpoints.site.cluster, source)
    checkpoints.take("source")


def test_checkpoint_is_refused_in_time_when_the_plugin_hangs(
    checkpoints: Checkpoints, hook: Hook
) -> None:
    source = checkpoints.start_counting("source", POSSIBLE)
    with hook.hanging(), pytest.raises(ApiError, match="criu failed"):
        checkpoints.take("source")
    wait_at_work(checkpoints.site.cluster, source)
    checkpoints.site.unchanged(source)


@pytest.mark.parametrize("action", ["lock", "checkpoint"])
def test_no_lock_is_left_when_cuda_state_cannot_be_saved(
    checkpoints: Checkpoints, hook: Hook, cuda_hook: CudaPlugin, action: str
) -> None:
    source = start_with_cuda(checkpoints, "source", POSSIBLE)
    cuda_hook.fail(action)
    with (
        cuda_hook.computing(source, gpu_of(source)),
        pytest.raises(ApiError, match="criu failed"),
    ):
        checkpoints.take("source")
    operation = hook.ended(source)
    assert (state_of(operation), operation["gpuOwner"]) == ("FAILED_CLEAN", "GPU_OWNER_CRIU_PLUGIN")
    assert action in cuda_hook.transitions(source)
    assert cuda_hook.state(source) is CudaState.RUNNING
    wait_at_work(checkpoints.site.cluster, source)


def test_restored_pod_is_killed_when_its_cuda_state_does_not_come_back(
    checkpoints: Checkpoints, hook: Hook, cuda_hook: CudaPlugin
) -> None:
    site = checkpoints.site
    source = start_with_cuda(checkpoints, "source", POSSIBLE)
    with cuda_hook.computing(source, gpu_of(source)):
        image = checkpoints.image(checkpoints.take("source"))
    operation = hook.ended(source)
    assert state_of(operation) == "DONE"
    assert cuda_hook.state(source) is CudaState.RUNNING
    site.delete("source")
    site.wait_gone("source")
    cuda_hook.fail("restore")
    request = with_config(WHOLE, gpu=gpu_of(source), restoreFrom=operation["operationId"])
    site.create("restored", request, **restored_from(image))
    site.wait_event("restored", "GPURestoreFailed")
    wait_until(
        lambda: "" if site.phase("restored") == "Failed" else site.phase("restored"),
        waiting_for="the restored pod to be killed",
    )
    assert site.cluster.ctr.tasks().get(_container_of(site, "restored"), "STOPPED") == "STOPPED"


def _container_of(site: Site, pod: str) -> str:
    (status,) = site.pod(pod)["status"]["containerStatuses"]
    return str(status["containerID"]).removeprefix("containerd://")
