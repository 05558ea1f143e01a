"""Prepares that hang leave room: for unprepares, and for words that say what is going on."""

from __future__ import annotations

from pathlib import Path

from dra_driver.kubelet.operations import PREPARES_AT_ONCE
from tests.builders import ref
from tests.waiting import eventually
from tests.wire.plugin import TIMEOUT_S, channel, prepare, prepare_later, running, unprepare

BURST = 60


def test_unprepare_is_answered_when_more_prepares_hang_than_there_are_workers(root: Path) -> None:
    refs = [ref(number) for number in range(100, 100 + BURST)]
    with running(root, room_wait_s=0.1) as plugin, channel(plugin.paths.dra) as opened:
        gates = [plugin.operations.gate(each.uid) for each in refs]
        calls = [prepare_later(opened, each) for each in refs]
        eventually(
            lambda: len(plugin.operations.calls) == PREPARES_AT_ONCE, TIMEOUT_S, "all room is taken"
        )
        assert unprepare(opened, ref(1)).claims[ref(1).uid].error == ""
        for gate in gates:
            gate.open.set()
        answers = [call.result(timeout=TIMEOUT_S) for call in calls]
        errors = [each.claims[one.uid].error for each, one in zip(answers, refs, strict=True)]
        assert errors.count("") >= PREPARES_AT_ONCE
        assert all("has to wait" in error for error in errors if error)


def test_prepare_says_that_the_node_is_busy_when_there_is_no_room(root: Path) -> None:
    refs = [ref(number) for number in range(100, 100 + PREPARES_AT_ONCE)]
    with running(root, room_wait_s=0.1) as plugin, channel(plugin.paths.dra) as opened:
        gates = [plugin.operations.gate(each.uid) for each in refs]
        calls = [prepare_later(opened, each) for each in refs]
        eventually(
            lambda: len(plugin.operations.calls) == PREPARES_AT_ONCE, TIMEOUT_S, "all room is taken"
        )
        error = prepare(opened, ref(1)).claims[ref(1).uid].error
        assert error.startswith(f"claim team-a/claim-1 has to wait: {PREPARES_AT_ONCE} claims are")
        for gate in gates:
            gate.open.set()
        for call in calls:
            call.result(timeout=TIMEOUT_S)
        assert prepare(opened, ref(1)).claims[ref(1).uid].error == ""
