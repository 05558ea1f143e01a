"""Which claims and names the hook finds for a container."""

from __future__ import annotations

from dataclasses import replace

from dra_driver.model.checkpoint import Code, HookAnswer, Target
from dra_driver.model.claim import PodRef
from dra_driver.model.cuda import CudaState
from dra_driver.model.deadline import Deadline
from dra_driver.model.owner import PodClaims
from dra_driver.model.record import Record
from dra_driver.model.share import CheckpointPolicy
from tests.fakes.checkpoint import ref_of
from tests.unit.hooking import Rig, by_criu, container, whole


def told(pod: str, *records: Record) -> PodClaims:
    ids = {name for record in records for device in record.devices for name in device.cdi_ids}
    return PodClaims(namespace="team-a", pod=pod, container="main", cdi_ids=tuple(sorted(ids)))


def named(answer: HookAnswer) -> tuple[str, str]:
    assert answer.operation is not None, answer.text
    return answer.operation.target.pod_name, answer.operation.target.container_name


def test_second_claim_is_found_when_the_mark_of_the_first_hides_its_own() -> None:
    records = (whole(1), whole(2, checkpoint=CheckpointPolicy.NONE))
    rig = Rig(container(), records=records)
    rig.node.told = (told("web", *records),)

    answer = rig.call(by_criu())

    assert answer.code is Code.FAILED_PRECONDITION
    assert str(records[1].claim) in answer.text


def test_kubelet_is_asked_once_for_each_container() -> None:
    rig = Rig(container(), container(name="c2", claim=2, first_pid=200))
    rig.fakes.records = (whole(1), whole(2))
    rig.node.told = (told("web", whole(1)), told("db", whole(2)))
    assert named(rig.call(by_criu())) == ("web", "main")
    rig.node.runtimes.clear()
    for _ in range(3):
        rig.keep()

    rig.node.kubelet_away = True
    rig.node.runtimes.add(901)
    again = rig.call(by_criu("criu-2", runner=901))
    other = rig.call(
        by_criu("criu-3", runner=901, target=Target(container_id="c2", init=ref_of(200)))
    )

    assert named(again) == ("web", "main")
    assert named(other) == ("", "")


def test_kubelet_is_asked_again_when_it_did_not_know_the_container() -> None:
    rig = Rig(container(), records=(whole(1),))
    assert named(rig.call(by_criu())) == ("", "")
    rig.node.runtimes.clear()
    for _ in range(3):
        rig.keep()

    rig.node.told = (told("web", whole(1)),)
    rig.node.runtimes.add(901)

    assert named(rig.call(by_criu("criu-2", runner=901))) == ("web", "main")


def test_criu_is_looked_at_only_when_processes_use_cuda() -> None:
    rig = Rig(container(), container(CudaState.RUNNING, name="c2", first_pid=200))

    assert rig.call(by_criu()).code is Code.OK
    assert rig.fakes.plugin_asked == 0
    asked = by_criu("criu-2", target=Target(container_id="c2", init=ref_of(200)))
    assert rig.call(asked).code is Code.OK
    assert rig.fakes.plugin_asked == 1


POD_UID = container().pod_uid


def reserved(number: int = 1, **pods: str) -> Record:
    """A claim of pods by name, with their UIDs."""
    refs = tuple(PodRef(name, uid) for name, uid in sorted(pods.items()))
    return replace(whole(number), pods=refs)


def told_ahead(rig: Rig, *pods: PodClaims) -> None:
    """Let the kubelet tell, and be away from then on."""
    rig.node.told = pods
    rig.told_pods.ask(Deadline(rig.fakes.clock.monotonic_s() + 1.0))
    rig.node.kubelet_away = True


def test_container_has_the_names_that_were_told_since_it_runs() -> None:
    record = reserved(web=POD_UID)
    rig = Rig(container(), records=(record,))
    told_ahead(rig, told("db", whole(2)), told("web", record))
    assert named(rig.call(by_criu())) == ("web", "main")


def test_kubelet_is_asked_when_a_container_was_started_after_it_had_told() -> None:
    record = reserved(web=POD_UID)
    rig = Rig(container(), records=(record,))
    rig.fakes.clock.advance(-rig.fakes.clock.monotonic_s() + ref_of(100).started / 100)
    told_ahead(rig, told("web", record))
    assert named(rig.call(by_criu())) == ("", "")


def test_kubelet_is_asked_when_what_it_told_leaves_a_doubt() -> None:
    shared = reserved(web="22222222-2222-4333-8444-555555555555")
    rig = Rig(container(), records=(shared,))
    told_ahead(rig, told("web", shared))
    assert named(rig.call(by_criu())) == ("", ""), "the pod is another one of that name"

    record = reserved(web=POD_UID)
    rig = Rig(container(), records=(record,))
    told_ahead(rig, told("web", record), replace(told("web", record), container="sidecar"))
    assert named(rig.call(by_criu())) == ("", ""), "two containers of the pod have the claim"


def test_container_of_a_claim_of_several_pods_is_that_of_its_own_pod() -> None:
    record = reserved(db="22222222-2222-4333-8444-555555555555", web=POD_UID)
    rig = Rig(container(), records=(record,))
    rig.node.told = (told("db", record), told("web", record))
    assert named(rig.call(by_criu())) == ("web", "main")
