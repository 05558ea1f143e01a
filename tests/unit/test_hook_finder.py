"""Which claims and names the hook finds for a container."""

from __future__ import annotations

from dra_driver.model.checkpoint import Code, HookAnswer, Target
from dra_driver.model.cuda import CudaState
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
