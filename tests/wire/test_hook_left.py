"""Calls of gpuslice-hook whose program does not wait for the answer."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dra_driver.checkpoint.raw_line import Marker, Phase, RawRequest
from dra_driver.checkpoint.raw_socket import Answers
from dra_driver.model.checkpoint import OperationState
from dra_driver.model.cuda import CudaState
from dra_driver.model.deadline import Deadline
from tests.builders import ref
from tests.fakes.checkpoint import FakeHook, FakeNode
from tests.unit.hooking import container, whole
from tests.waiting import eventually
from tests.wire.hook import PATIENCE_S, Hosted, hosted, line, received

RUNNING = CudaState.RUNNING


def fakes() -> FakeHook:
    node = FakeNode(container(RUNNING))
    node.runtimes.add(900)
    return FakeHook(node, records=(whole(),))


class Leaving:
    """Lets the program leave while its call is answered."""

    def __init__(self, calls: Answers, program: socket.socket) -> None:
        self._calls = calls
        self._program = program

    def answer(self, raw: RawRequest, peer_pid: int, deadline: Deadline) -> bytes:
        answer = self._calls.answer(raw, peer_pid, deadline)
        self._program.close()
        return answer

    def unheard(self, raw: RawRequest, peer_pid: int, deadline: Deadline) -> None:
        self._calls.unheard(raw, peer_pid, deadline)


def leave_meanwhile(served: Hosted, data: bytes) -> None:
    """Make a call whose program has left when it is answered."""
    ours, program = socket.socketpair()
    raw = served.host._raw
    raw._calls = Leaving(raw._calls, program)
    with ours, program:
        program.sendall(data)
        with pytest.raises(BrokenPipeError):
            raw._converse(ours)


@pytest.mark.parametrize(
    "late",
    [
        line(Phase.PRE_DUMP),
        line(Phase.PRE_DUMP, marker=Marker.YES),
        line(Phase.CREATE_RUNTIME, pid=None, criu=None, claim=ref(1).uid),
    ],
)
def test_nothing_begins_when_the_program_has_left_and_stopped_by_itself(
    root: Path, late: bytes
) -> None:
    with hosted(fakes(), root) as served:
        ours, program = socket.socketpair()
        program.sendall(late)
        program.close()
        with ours:
            served.host._raw._converse(ours)
        assert served.host.handler.operations() == ()


def test_program_that_says_no_more_is_answered(root: Path) -> None:
    with hosted(fakes(), root) as served:
        ours, program = socket.socketpair()
        with program:
            program.sendall(line(Phase.PRE_DUMP))
            program.shutdown(socket.SHUT_WR)
            with ours:
                served.host._raw._converse(ours)
            assert received(program) == b"OK\n"
        assert len(served.host.handler.operations()) == 1


def test_dump_is_undone_when_the_program_left_before_it_was_let_go_on(root: Path) -> None:
    hook = fakes()
    with hosted(hook, root) as served:
        leave_meanwhile(served, line(Phase.PRE_DUMP))
        hook.node.runtimes.clear()
        operations = served.host.handler.operations
        eventually(lambda: operations()[0].state.final, PATIENCE_S, "it is undone")
        (ended,) = operations()

    assert ended.state is OperationState.FAILED_CLEAN
    assert ended.text == "the runtime did not wait for the driver's answer"


def test_dump_goes_on_when_the_program_left_that_goes_on_by_itself(root: Path) -> None:
    with hosted(fakes(), root) as served:
        leave_meanwhile(served, line(Phase.PRE_DUMP, marker=Marker.NO))
        (begun,) = served.host.handler.operations()

    assert begun.state is OperationState.DELEGATED
