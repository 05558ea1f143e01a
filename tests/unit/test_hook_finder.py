"""Which claims and names the hook finds for a container."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dra_driver.model.checkpoint import Code, HookAnswer, Target
from dra_driver.model.claim import PodRef
from dra_driver.model.cuda import CudaState
from dra_driver.model.deadline import Deadline
from dra_driver.model.owner import PodClaims
from dra_driver.model.record import Record
from dra_driver.model.share import CheckpointPolicy
from tests.fakes.checkpoint import ref_of
from tests.unit.hooking import Rig, by_criu, container, pre, whole


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


def served(rig: Rig, *, ids: dict[str, str], init: str = "", **claims: tuple[Record, ...]) -> None:
    """Let the API server have pod web: its containers' claims, and the ids of those that run.

    `init` is the one among them that ends before the others.
    """
    containers = [
        {"name": name, "resources": {"claims": [{"name": each.claim.name} for each in records]}}
        for name, records in claims.items()
    ]
    used = {each.claim.name for records in claims.values() for each in records}
    rig.node.pods_by_name["team-a", "web"] = {
        "metadata": {"namespace": "team-a", "name": "web", "uid": POD_UID},
        "spec": {
            "resourceClaims": [{"name": name, "resourceClaimName": name} for name in used],
            "initContainers": [each for each in containers if each["name"] == init],
            "containers": [each for each in containers if each["name"] != init],
        },
        "status": {
            "containerStatuses": [
                {"name": name, "containerID": f"containerd://{each}"} for name, each in ids.items()
            ]
        },
    }


def claims_of(answer: HookAnswer) -> list[str]:
    assert answer.operation is not None, answer.text
    return [each.name for each in answer.operation.claims]


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


def forbidden(number: int = 2) -> Record:
    """A claim of pod web that allows no checkpoints."""
    return replace(reserved(number, web=POD_UID), checkpoint=CheckpointPolicy.NONE)


@pytest.mark.parametrize("ahead", [True, False])
def test_claim_of_an_init_container_is_found_where_the_kubelet_lists_it_not(*, ahead: bool) -> None:
    shown, hidden = reserved(web=POD_UID), forbidden()
    rig = Rig(container(), records=(shown, hidden))
    served(rig, ids={"prepare": "c1"}, init="prepare", prepare=(shown, hidden), main=(shown,))
    if ahead:
        told_ahead(rig, told("web", shown))
    rig.node.kubelet_away, rig.node.told = False, (told("web", shown),)

    answer = rig.call(by_criu())

    assert answer.code is Code.FAILED_PRECONDITION
    assert str(hidden.claim) in answer.text


def test_claim_of_an_init_container_is_not_that_of_another_one() -> None:
    own, other = reserved(web=POD_UID), forbidden()
    rig = Rig(container(), records=(own, other))
    served(rig, ids={"main": "c1", "prepare": "c9"}, init="prepare", prepare=(other,), main=(own,))
    rig.node.told = (told("web", own),)

    answer = rig.call(by_criu())

    assert (named(answer), claims_of(answer)) == (("web", "main"), [own.claim.name])


def test_claims_in_doubt_count_when_nobody_tells_whose_they_are() -> None:
    own, other = reserved(web=POD_UID), forbidden()
    beside = replace(told("web", own, other), container="sidecar")
    for listed in ((told("web", own),), (told("web", own), beside), ()):
        rig = Rig(container(), records=(own, other))
        rig.node.told = listed
        answer = rig.call(by_criu())
        assert answer.code is Code.FAILED_PRECONDITION, listed
        assert str(other.claim) in answer.text


def test_container_that_was_just_started_is_the_one_that_the_api_server_does_not_know() -> None:
    own, other = reserved(web=POD_UID), forbidden()
    rig = Rig(container(), records=(own, other))
    served(rig, ids={"sidecar": "c9"}, main=(own,), sidecar=(own, other))
    rig.node.told = (told("web", own), replace(told("web", own, other), container="sidecar"))

    answer = rig.call(by_criu())

    assert (named(answer), claims_of(answer)) == (("web", "main"), [own.claim.name])


def test_container_is_not_that_of_a_later_pod_of_the_same_name() -> None:
    own, other = reserved(web=POD_UID), forbidden()
    later = reserved(3, web="22222222-2222-4333-8444-555555555555")
    rig = Rig(container(), records=(own, other, later))
    told_ahead(rig, told("web", own, later))
    answer = rig.call(by_criu())
    assert answer.code is Code.FAILED_PRECONDITION
    assert str(other.claim) in answer.text

    rig = Rig(container(), records=(own, later))
    told_ahead(rig, told("web", own, later))
    answer = rig.call(by_criu())
    assert (named(answer), claims_of(answer)) == (("", ""), [own.claim.name])

    rig = Rig(container(), records=(own, later))
    rig.node.told = (told("web", own, later),)
    answer = rig.call(by_criu())
    assert (named(answer), claims_of(answer)) == (("", ""), [own.claim.name])


def test_pod_tells_of_a_container_when_the_kubelet_does_not() -> None:
    own, other = reserved(web=POD_UID), forbidden()
    rig = Rig(container(), records=(own, other))
    served(rig, ids={"main": "c1", "sidecar": "c9"}, main=(own,), sidecar=(other,))

    answer = rig.call(by_criu())

    assert (named(answer), claims_of(answer)) == (("web", "main"), [own.claim.name])


def test_container_is_of_the_pod_that_its_cgroup_names() -> None:
    record = reserved(web=POD_UID)
    rig = Rig(container(), records=(record,))
    told_ahead(rig, told("web", record))
    uid = "22222222-2222-4333-8444-555555555555"
    target = Target(container_id="c1", init=ref_of(100), pod_uid=uid)

    assert named(rig.call(by_criu(target=target))) == ("web", "main")


def test_container_stays_known_when_the_kubelet_forgets_it() -> None:
    own, other = reserved(web=POD_UID), reserved(2, web=POD_UID)
    rig = Rig(container(), records=(own, other))
    told_ahead(rig, told("web", own, other))
    assert claims_of(rig.call(by_criu())) == [own.claim.name, other.claim.name]
    rig.node.runtimes.clear()
    for _ in range(3):
        rig.keep()

    rig.node.kubelet_away, rig.node.told = False, ()
    rig.told_pods.ask(Deadline(rig.fakes.clock.monotonic_s() + 1.0))
    rig.node.runtimes.add(901)

    again = rig.call(by_criu("criu-2", runner=901))
    assert (named(again), claims_of(again)) == (
        ("web", "main"),
        [own.claim.name, other.claim.name],
    )


def test_call_is_refused_when_it_names_another_pod_than_the_containers() -> None:
    rig = Rig(container(), records=(reserved(web=POD_UID),))
    target = Target(container_id="c1", pod_uid="22222222-2222-4333-8444-555555555555")

    answer = rig.call(pre(target=target))

    assert answer.code is Code.NOT_FOUND
    assert "leave target.pod_uid out" in answer.text
    assert rig.call(pre(target=replace(target, pod_uid=POD_UID))).code is Code.OK
