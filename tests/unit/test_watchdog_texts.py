from __future__ import annotations

import pytest

from dra_driver.model.owner import PodClaims
from dra_driver.model.share import OnExceed
from dra_driver.plan.watchdog_texts import exceeded_text, stranger_text, terminated_text
from dra_driver.plan.watchdog_values import Stranger, StrangerKind, Usage, Victim
from tests.builders import ref, uuid

MIB = 1 << 20
VICTIM = Victim(pid=7, started=1, memory_bytes=500 * MIB)


def usage(
    *, enforced: bool = True, pods: tuple[str, ...] = (), victims: tuple[Victim, ...] = ()
) -> Usage:
    return Usage(
        claim=ref(1),
        gpu=uuid(0),
        limit_bytes=1024 * MIB,
        used_bytes=1100 * MIB + 1,
        clients=1,
        complete=True,
        over=True,
        under=False,
        enforced=enforced,
        on_exceed=OnExceed.WARN,
        pods=pods,
        victims=victims,
    )


def users(number: int) -> tuple[PodClaims, ...]:
    return tuple(
        PodClaims(namespace="team-a", pod=f"p{each}", container="c", claims=("claim-1",))
        for each in range(number)
    )


@pytest.mark.parametrize(
    ("found", "way_out"),
    [
        (usage(), "fewer processes"),
        (usage(enforced=False), "time-slicing limits no memory"),
        (usage(victims=(VICTIM,)), "lose the GPU"),
    ],
)
def test_exceeded_text_says_what_comes_of_it(found: Usage, way_out: str) -> None:
    text = exceeded_text(found, users(1))

    assert text.startswith(
        f"claim team-a/claim-1 uses 1101 MiB of GPU {uuid(0)} and holds 1024 MiB "
        "(1 process in p0/c): "
    )
    assert way_out in text


@pytest.mark.parametrize(
    ("pods", "uids", "where"),
    [
        (users(5), (), "p0/c, p1/c, p2/c, p3/c, p4/c):"),
        (users(7), ("u",), "p3/c, p4/c and 2 more):"),
        ((), ("u", "v"), "pod u, pod v):"),
        ((), (), "containers that are not known):"),
    ],
)
def test_exceeded_text_names_who_is_known_and_stays_short(
    pods: tuple[PodClaims, ...], uids: tuple[str, ...], where: str
) -> None:
    assert where in exceeded_text(usage(pods=uids), pods)


def test_terminated_text_names_process_policy_and_amounts() -> None:
    text = terminated_text(usage(victims=(VICTIM,)), VICTIM)

    for part in ("process 7", uuid(0), "500 MiB", "1101 MiB", "1024 MiB", "onExceed"):
        assert part in text


@pytest.mark.parametrize(
    ("pod_uid", "container_id", "place"),
    [("u", "c", "of pod u"), (None, "c", "of container c"), (None, None, "of no container")],
)
@pytest.mark.parametrize("kind", StrangerKind)
def test_stranger_text_names_process_place_and_gpu(
    kind: StrangerKind, pod_uid: str | None, container_id: str | None, place: str
) -> None:
    stranger = Stranger(
        kind=kind, gpu=uuid(0), pid=9, started=1, pod_uid=pod_uid, container_id=container_id
    )

    text = stranger_text(stranger)

    for part in ("process 9", place, uuid(0)):
        assert part in text
