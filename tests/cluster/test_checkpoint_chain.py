"""What the driver's hook hangs in, without the hook: kubelet, containerd, runc and CRIU."""

import pytest

from tests.cluster.checkpoint_runtime import wait_at_work
from tests.cluster.checkpoint_script import ActionScript
from tests.cluster.checkpoint_site import Checkpoints, Count, counting, restored_from
from tests.cluster.checkpoint_specs import claim_with, hook
from tests.kube.client import ApiError

DUMP = ("pre-dump", "network-lock", "post-dump", "network-unlock")
RESTORE = (
    "pre-restore",
    "setup-namespaces",
    "post-setup-namespaces",
    "post-restore",
    "network-unlock",
    "pre-resume",
    "post-resume",
)


def test_pod_counts_on_when_it_is_restored_after_its_end(
    checkpoints: Checkpoints, script: ActionScript
) -> None:
    site = checkpoints.site
    source = checkpoints.start_counting("source")
    counted = Count.of(source)
    archive = checkpoints.take("source")
    calls = script.calls()
    assert tuple(call.action for call in calls) == DUMP
    assert {call.pid for call in calls} == {source.pid}
    assert calls[0].frozen
    wait_at_work(site.cluster, source)
    site.unchanged(source)
    site.delete("source")
    site.wait_gone("source")

    script.forget()
    site.create("restored", **restored_from(checkpoints.image(archive)))
    restored = checkpoints.counting("restored")
    goes_on = Count.of(restored)
    assert goes_on.process == counted.process
    assert goes_on.number >= counted.number
    wait_at_work(site.cluster, restored)
    assert script.actions() == RESTORE


def test_hook_in_the_spec_of_a_claim_is_called_when_its_pod_starts_and_is_restored(
    checkpoints: Checkpoints, script: ActionScript
) -> None:
    site = checkpoints.site
    claim_with(checkpoints, hook(script.path, "createRuntime"))
    site.create_with("source", "gpu", **counting())
    source = checkpoints.counting("source")
    (started,) = script.calls()
    assert started.status == "creating"
    archive = checkpoints.take("source")
    site.delete("source")
    site.wait_gone("source")

    script.forget()
    site.create_with("restored", "gpu", **restored_from(checkpoints.image(archive)))
    restored = checkpoints.counting("restored")
    assert restored.environment == source.environment
    actions = script.actions()
    assert actions == (*RESTORE[:1], "oci", *RESTORE[1:])
    assert script.calls()[actions.index("oci")].status == "stopped"
    wait_at_work(site.cluster, restored)


@pytest.mark.parametrize("action", ["pre-dump", "network-lock", "post-dump"])
def test_pod_runs_on_when_an_action_of_its_checkpoint_is_refused(
    checkpoints: Checkpoints, script: ActionScript, action: str
) -> None:
    source = checkpoints.start_counting("source")
    with script.refusing(action), pytest.raises(ApiError, match="criu failed"):
        checkpoints.take("source")
    assert (
        script.actions()
        == {
            "pre-dump": DUMP[:1],
            "network-lock": (*DUMP[:2], DUMP[3]),
            "post-dump": DUMP,
        }[action]
    )
    assert checkpoints.archives() == frozenset()
    wait_at_work(checkpoints.site.cluster, source)
    checkpoints.site.unchanged(source)
    checkpoints.take("source")
