"""Which operation took a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.plan.operation_choice import archive_time_s, checkpoint_operation, word

ARCHIVE = "/var/lib/kubelet/checkpoints/checkpoint-trainer_team-main-2026-11-30T17:00:10Z.tar"
BEGAN_S = 1796058010.0


def operation(
    name: str,
    started_s: float,
    *,
    uid: str = "u",
    container: str = "main",
    kind: str = "CHECKPOINT",
) -> dict[str, Any]:
    return {
        "operationId": name,
        "kind": f"KIND_{kind}",
        "startedSeconds": started_s,
        "target": {"podUid": uid, "containerName": container},
    }


def chosen(*operations: dict[str, Any], archive: str = ARCHIVE) -> str | None:
    found = checkpoint_operation(operations, pod_uid="u", container="main", archive=archive)
    return None if found is None else str(found["operationId"])


@pytest.mark.parametrize(
    ("name", "time_s"),
    [
        (ARCHIVE, BEGAN_S),
        (ARCHIVE.replace("17:00:10Z", "18:00:10+01:00"), BEGAN_S),
        ("a.tar", None),
        (ARCHIVE + ".part", None),
    ],
)
def test_archive_tells_when_its_checkpoint_began(name: str, time_s: float | None) -> None:
    assert archive_time_s(name) == time_s


def test_operation_is_the_first_that_began_with_the_archive() -> None:
    before, own, after = (operation(str(add), BEGAN_S + add) for add in (-20, 0.4, 30))
    assert chosen(before, own, after) == "0.4"
    assert chosen(before) is None
    assert chosen() is None


def test_operation_is_of_the_container_and_a_checkpoint() -> None:
    assert (
        chosen(
            operation("other pod", BEGAN_S, uid="v"),
            operation("other container", BEGAN_S, container="side"),
            operation("restore", BEGAN_S, kind="RESTORE"),
        )
        is None
    )
    assert chosen(operation("unnamed", BEGAN_S, container="")) == "unnamed"


def test_operation_is_the_last_where_the_archive_tells_no_time() -> None:
    operations = (operation("a", BEGAN_S), operation("b", BEGAN_S + 1))
    assert chosen(*operations, archive="a.tar") == "b"


def test_states_are_spelled_for_people() -> None:
    assert word("STATE_FAILED_CLEAN") == "failed clean"
