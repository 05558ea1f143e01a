"""The driver's hook when a dump or a restore fails, or the plugin goes away, in the midst of it.

What the runtime and the kernel say counts: the container runs on or is not there, and no operation
is left that waits for anybody.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from tests.cluster import deployed
from tests.cluster.checkpoint_cuda import CudaPlugin, start_with_cuda
from tests.cluster.checkpoint_hook import (
    CHECKPOINT,
    PROGRAM,
    RESTORE,
    Hook,
    gpu_of,
    state_of,
    with_config,
)
from tests.cluster.checkpoint_runtime import (
    checkpoint_until,
    dump_log,
    wait_at_work,
    wait_nothing_left,
)
from tests.cluster.checkpoint_script import ActionScript
from tests.cluster.checkpoint_site import (
    Checkpoints,
    Count,
    connected,
    counting,
    restored_from,
)
from tests.cluster.checkpoint_specs import claim_with
from tests.cluster.checkpoint_specs import hook as oci_hook
from tests.cluster.life_plugin import plugin_container, renew_plugin
from tests.cluster.life_processes import kill
from tests.cluster.life_site import WHOLE, Site
from tests.kube.client import ApiError
from tests.kube.cluster import Cluster
from tests.kube.process import wait_until

POSSIBLE = with_config(WHOLE, checkpoint="Required")
NO_CLAIM = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize("network", ["pod", "node"])
def test_operation_is_rolled_back_when_a_dump_fails_because_of_a_connection(
    checkpoints: Checkpoints, hook: Hook, network: str
) -> None:
    """On the node's network CRIU tells nobody of the failure; the driver sees that CRIU is gone."""
    first = connected(5099)
    more: dict[str, Any] = {"hostNetwork": True} if network == "node" else {}
    checkpoints.site.create("source", POSSIBLE, **counting(first=first), **more)
    source = checkpoints.counting("source")
    with pytest.raises(ApiError, match="criu failed"):
        checkpoints.take("source")
    assert "Connected TCP socket" in dump_log(checkpoints.site.cluster, source)
    assert checkpoints.archives() == frozenset()
    operation = hook.ended(source)
    assert (state_of(operation), operation["remainingSeconds"]) == ("FAILED_CLEAN", 0)
    wait_at_work(checkpoints.site.cluster, source)
    checkpoints.site.unchanged(source)


def test_container_is_never_left_paused_when_the_plugin_hangs_and_the_caller_has_a_deadline(
    checkpoints: Checkpoints, hook: Hook
) -> None:
    cluster = checkpoints.site.cluster
    source = checkpoints.start_counting("source", POSSIBLE)
    with hook.hanging():
        with pytest.raises(grpc.RpcError) as caught:
            checkpoint_until(cluster, source, deadline_s=30.0)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert "criu failed" in str(caught.value.details())
        wait_at_work(cluster, source)

    def problem() -> str:
        try:
            checkpoints.take("source")
        except ApiError as error:
            # What was asked before is answered now, though nobody waits for it, and may be in the way.
            hook.all_ended(source.container, CHECKPOINT)
            return str(error)
        return ""

    wait_until(problem, waiting_for="a checkpoint", timeout_s=60.0)
    assert "DONE" in hook.all_ended(source.container, CHECKPOINT)
    wait_at_work(cluster, source)
    checkpoints.site.unchanged(source)


def test_pod_with_two_claims_counts_on_when_it_is_restored(
    checkpoints: Checkpoints, hook: Hook
) -> None:
    """Its container has the hooks of both, which the runtime calls one after the other."""
    site = checkpoints.site
    source = checkpoints.start_counting("source", POSSIBLE, POSSIBLE)
    counted = Count.of(source)
    image = checkpoints.image(checkpoints.take("source"))
    site.create("restored", POSSIBLE, POSSIBLE, **restored_from(image))
    restored = checkpoints.counting("restored")
    assert Count.of(restored).process == counted.process
    operation = hook.ended(restored, RESTORE)
    assert state_of(operation) == "DONE"
    claims = [site.claim_of("restored", number)["metadata"]["uid"] for number in range(2)]
    assert sorted(each["uid"] for each in operation["claims"]) == sorted(claims)
    wait_at_work(site.cluster, restored)


@pytest.mark.parametrize("action", ["setup-namespaces", "post-restore", "post-resume"])
def test_restored_pod_counts_on_when_the_plugin_is_killed_during_an_action(
    checkpoints: Checkpoints, hook: Hook, other_script: ActionScript, action: str
) -> None:
    site = checkpoints.site
    renew_plugin(site.cluster)
    source = checkpoints.start_counting("source", POSSIBLE)
    counted = Count.of(source)
    image = checkpoints.image(checkpoints.take("source"))
    with _killed_during(site.cluster, other_script, action):
        _restore_beside(site, image)
    restored = checkpoints.counting("restored")
    goes_on = Count.of(restored)
    assert goes_on.process == counted.process
    assert goes_on.number >= counted.number
    deployed.wait_deployed(site.cluster)
    assert hook.all_ended(restored.container, RESTORE) == [
        "DONE" if action == "post-resume" else "FAILED_CLEAN"
    ]
    wait_at_work(site.cluster, restored)
    wait_at_work(site.cluster, source)
    site.unchanged(source, restored)


def test_container_is_not_restored_when_the_plugin_is_killed_before_it_is_asked(
    checkpoints: Checkpoints, hook: Hook, other_script: ActionScript
) -> None:
    site = checkpoints.site
    renew_plugin(site.cluster)
    source = checkpoints.start_counting("source", POSSIBLE)
    image = checkpoints.image(checkpoints.take("source"))
    with _killed_during(site.cluster, other_script, "pre-restore"):
        _restore_beside(site, image)
    site.wait_event("restored", "error running hook", "gpuslice-hook")
    container = _refused(site, "restored")
    deployed.wait_deployed(site.cluster)
    assert hook.all_ended(container, RESTORE) == []
    wait_at_work(site.cluster, source)


def test_next_plugin_kills_a_restored_pod_when_its_cuda_state_did_not_come_back(
    checkpoints: Checkpoints, hook: Hook, cuda_hook: CudaPlugin, other_script: ActionScript
) -> None:
    site = checkpoints.site
    renew_plugin(site.cluster)
    source = start_with_cuda(checkpoints, "source", POSSIBLE)
    with cuda_hook.computing(source, gpu_of(source)):
        image = checkpoints.image(checkpoints.take("source"))
    cuda_hook.fail("restore")
    with _killed_during(site.cluster, other_script, "post-restore"):
        _restore_beside(site, image)
    site.wait_event("restored", "GPURestoreFailed")
    container = _refused(site, "restored")
    assert hook.all_ended(container, RESTORE) == ["FAILED_KILLED"]
    wait_at_work(site.cluster, source)


def test_container_is_not_restored_when_the_node_has_another_gpu_driver_by_now(
    checkpoints: Checkpoints, hook: Hook
) -> None:
    """The claim was prepared before: only the hook sees it."""
    site = checkpoints.site
    source = checkpoints.start_counting("source", POSSIBLE)
    image = checkpoints.image(checkpoints.take("source"))
    checkpoint = hook.ended(source)["operationId"]
    site.delete("source")
    site.wait_gone("source")
    site.start("holder", with_config(WHOLE, gpu=gpu_of(source), restoreFrom=checkpoint))
    document = deployed.simulated_document(site.cluster)
    with deployed.simulated(site.cluster, {**document, "driverVersion": "580.1.1"}):
        _restore_beside(site, image, "holder")
        site.wait_event("restored", "error running hook", "does not fit", "580.1.1")
        site.wait_event("restored", "GPURestoreFailed", "does not fit", "580.1.1")
        container = _refused(site, "restored")
    assert hook.all_ended(container, RESTORE) == []


def test_container_is_not_restored_when_its_spec_names_a_claim_that_is_not_prepared(
    checkpoints: Checkpoints, hook: Hook
) -> None:
    site = checkpoints.site
    source = checkpoints.start_counting("source", POSSIBLE)
    image = checkpoints.image(checkpoints.take("source"))
    arguments = ("--claim", NO_CLAIM, "oci", "createRuntime")
    claim_with(checkpoints, oci_hook(PROGRAM, "createRuntime", *arguments))
    site.create_with("restored", "gpu", **restored_from(image))
    site.wait_event("restored", "error running hook", f"{NO_CLAIM} is not prepared on this node")
    container = _refused(site, "restored")
    assert hook.all_ended(container, RESTORE) == ["FAILED_CLEAN"]
    wait_at_work(site.cluster, source)


def _restore_beside(site: Site, image: str, pod: str = "source") -> None:
    """Restore an image with the claim of a pod that has it, too: the claim is prepared already."""
    claim = site.claim_of(pod)["metadata"]["name"]
    site.create_with("restored", claim, **restored_from(image))


@contextmanager
def _killed_during(cluster: Cluster, script: ActionScript, action: str) -> Iterator[None]:
    """Kill the plugin in the midst of that action of what the body begins; it goes on then."""
    script.forget()
    with script.hanging(action):
        yield
        wait_until(
            lambda: "" if action in script.actions() else str(script.actions()),
            waiting_for=f"action {action}",
        )
        kill(cluster, plugin_container(cluster))


def _refused(site: Site, pod: str) -> str:
    """Wait until a pod has failed without any process left, and give its container."""
    wait_until(
        lambda: "" if site.phase(pod) == "Failed" else site.phase(pod),
        waiting_for=f"pod {pod} to fail",
    )
    (status,) = site.pod(pod)["status"]["containerStatuses"]
    container = str(status["containerID"])
    wait_nothing_left(site.cluster, container)
    return container
