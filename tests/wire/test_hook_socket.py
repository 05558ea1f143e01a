"""The raw socket that gpuslice-hook calls."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

from dra_driver.checkpoint.raw_line import MAX_LINE, Marker, Phase
from dra_driver.checkpoint.raw_socket import CALLS_MAX
from dra_driver.model.checkpoint import Operation, OperationState
from dra_driver.model.cuda import CudaState
from tests.builders import ref
from tests.fakes.checkpoint import FakeHook, FakeNode
from tests.unit.hooking import container, share, whole
from tests.waiting import descriptors, eventually
from tests.wire.hook import PATIENCE_S, Hosted, connected, hosted, line, received, said

RUNNING, CHECKPOINTED = CudaState.RUNNING, CudaState.CHECKPOINTED
CONTAINER = "c1"


def fakes(*cuda: CudaState, **changes: object) -> FakeHook:
    node = FakeNode(container(*cuda))
    node.runtimes.add(900)
    made = FakeHook(node, records=(whole(),))
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_socket_is_roots_alone_and_is_gone_at_the_end(root: Path) -> None:
    with hosted(fakes(), root) as hook:
        for path in (hook.paths.raw, hook.paths.grpc):
            eventually(path.exists, PATIENCE_S, "it is served")
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(root.iterdir()) == []


def becomes(served: Hosted, state: OperationState, number: int = -1) -> Operation:
    """Wait for one of the operations, by start time."""
    operations = served.host.handler.operations
    eventually(
        lambda: operations()[number].state is state, PATIENCE_S, f"operation {number} is {state}"
    )
    return operations()[number]


def restored_state() -> bytes:
    """What runc says of the container that it restores."""
    annotations = {
        "io.kubernetes.cri.sandbox-name": "web",
        "io.kubernetes.cri.sandbox-namespace": "team-a",
    }
    state = {"id": "c2", "pid": 200, "status": "stopped", "annotations": annotations}
    return json.dumps(state).encode()


def test_dump_and_restore_go_by_when_criu_owns_the_processes(root: Path) -> None:
    hook = fakes(RUNNING)
    node = hook.node
    with hosted(hook, root) as served:
        raw = served.paths.raw
        for phase in (Phase.PRE_DUMP, Phase.NETWORK_LOCK, Phase.POST_DUMP, Phase.NETWORK_UNLOCK):
            assert said(raw, line(phase)) == b"OK\n"
        node.runtimes.clear()
        taken = becomes(served, OperationState.DONE)

        hook.records = (whole(2, restore_from=taken.id),)
        node.containers["c2"] = container(CHECKPOINTED, name="c2", claim=2, first_pid=200)
        node.runtimes.add(901)
        hook.clock.advance(1.0)
        created = line(
            Phase.CREATE_RUNTIME, pid=None, criu=None, body=restored_state(), claim=ref(2).uid
        )
        assert said(raw, created) == b"OK\n"
        node.containers["c2"].cuda[201] = RUNNING
        for phase in (Phase.POST_RESTORE, Phase.PRE_RESUME, Phase.POST_RESUME):
            assert said(raw, line(phase, pid=200, criu=901)) == b"OK\n"
        node.runtimes.clear()
        restored = becomes(served, OperationState.DONE)

    assert (restored.target.pod_name, restored.target.container_id) == ("web", "c2")
    assert restored.checkpoint_id == taken.id
    assert node.killed == []


def test_dump_is_vetoed_in_words_when_it_is_refused(root: Path) -> None:
    hook = fakes(RUNNING, records=(share(),))
    with hosted(hook, root) as served:
        answer = said(served.paths.raw, line(Phase.PRE_DUMP))

    assert answer.startswith(b"VETO claim team-a/claim-1 has a share of GPU ")


def test_dump_is_stopped_when_what_it_takes_cannot_be_kept(root: Path) -> None:
    hook = fakes(RUNNING)
    hook.store.broken = True
    with hosted(hook, root) as served:
        answer = said(served.paths.raw, line(Phase.PRE_DUMP))

    assert answer.startswith(b"VETO the disk is full")


def test_dump_that_failed_is_told_when_network_unlock_comes_without_post_dump(root: Path) -> None:
    hook = fakes(RUNNING)
    with hosted(hook, root) as served:
        said(served.paths.raw, line(Phase.PRE_DUMP))
        said(served.paths.raw, line(Phase.NETWORK_UNLOCK))
        hook.node.runtimes.clear()
        becomes(served, OperationState.FAILED_CLEAN)


def test_ordinary_container_passes(root: Path) -> None:
    hook = fakes()
    hook.node.containers["c1"].claims = ()
    with hosted(hook, root) as served:
        for phase in Phase:
            assert said(served.paths.raw, line(phase)) == b"OK\n"
        assert said(served.paths.raw, line(Phase.PRE_DUMP, pid=77)) == b"OK\n"
        assert served.host.handler.operations() == ()


def test_other_users_get_no_answer(root: Path) -> None:
    with hosted(fakes(RUNNING), root, uid=os.getuid() + 1) as served:
        answer = b""
        with suppress(ConnectionError):
            answer = said(served.paths.raw, line(Phase.PRE_DUMP))
        assert answer == b""
        assert served.host.handler.operations() == ()


def test_rubbish_gets_no_answer_so_that_the_program_decides(root: Path) -> None:
    with hosted(fakes(RUNNING), root) as served:
        for rubbish in (b"GPUSLICE9 x\n", b"\0" * 100 + b"\n", b"half", b""):
            with suppress(ConnectionError):
                assert said(served.paths.raw, rubbish) == b""
        with suppress(ConnectionError):
            said(served.paths.raw, b"x" * (4 * MAX_LINE))
        assert said(served.paths.raw, line(Phase.PRE_DUMP)) == b"OK\n"
        assert len(served.host.handler.operations()) == 1


@pytest.mark.parametrize(
    ("marker", "answer"), [(Marker.YES, b"VETO "), (None, b"VETO "), (Marker.NO, b"OK\n")]
)
def test_dump_of_a_marked_container_is_stopped_when_we_cannot_judge_it(
    root: Path, marker: Marker | None, answer: bytes
) -> None:
    hook = fakes(RUNNING)
    hook.inventory = None
    with hosted(hook, root) as served:
        said_to_it = said(served.paths.raw, line(Phase.PRE_DUMP, marker=marker))
        assert said_to_it.startswith(answer)
        assert said(served.paths.raw, line(Phase.POST_DUMP)) == b"OK\n"


def test_slow_callers_hold_up_nobody_and_go(root: Path) -> None:
    with hosted(fakes(), root) as served:
        before = descriptors()
        slow = [connected(served.paths.raw) for _ in range(CALLS_MAX // 2)]
        try:
            for each in slow:
                each.sendall(b"GPUSLICE1 pre-dump")
            assert said(served.paths.raw, line(Phase.PRE_DUMP)) == b"OK\n"
            for each in slow:
                with suppress(ConnectionError):
                    assert received(each) == b""
        finally:
            for each in slow:
                each.close()
        eventually(lambda: descriptors() <= before, PATIENCE_S, "all are let go")


def test_callers_are_turned_away_when_there_are_too_many(root: Path) -> None:
    hook = fakes(RUNNING)
    gate = Event()
    hook.node.held["state"] = gate
    with hosted(hook, root) as served:
        calls = [connected(served.paths.raw) for _ in range(CALLS_MAX)]
        try:
            for each in calls:
                each.sendall(line(Phase.PRE_DUMP))
            eventually(
                lambda: served.host._raw._room._value == 0, PATIENCE_S, "all callers are inside"
            )
            with suppress(ConnectionError):
                assert said(served.paths.raw, line(Phase.PRE_DUMP)) == b""
        finally:
            gate.set()
            answers = {received(each) for each in calls}
            for each in calls:
                each.close()
        assert answers == {b"OK\n"}
        assert len(served.host.handler.operations()) == 1


def test_second_plugin_serves_when_the_first_has_ended(root: Path) -> None:
    hook = fakes(RUNNING)
    first, second = Hosted(hook, root), Hosted(hook, root)
    first.start()
    try:
        eventually(first.paths.raw.exists, PATIENCE_S, "the first one serves")
        said(first.paths.raw, line(Phase.PRE_DUMP))
        second.start()
        [seen] = second.host.table.all()
        first.stop()
        eventually(second.paths.raw.exists, PATIENCE_S, "the second one serves")
        assert said(second.paths.raw, line(Phase.POST_DUMP)) == b"OK\n"
        hook.node.runtimes.clear()
        assert becomes(second, OperationState.DONE).id == seen.id
    finally:
        for each in (first, second):
            each.stop()
