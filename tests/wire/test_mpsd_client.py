from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from dra_driver.adapters.mpsd_client import MpsdClient
from dra_driver.errors import AdapterError, NotFound, NotReady, Reason
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory, Tier
from dra_driver.model.mps import GpuSharing, MpsPhase, Proof
from dra_driver.model.share import Expose, GpuShare, ShareAbility, Sharing
from tests.builders import gpu, inventory, uuid
from tests.fakes.sharing import FakeSharing
from tests.waiting import eventually
from tests.wire.mpsd import client, serving, share, soon

Apply = Callable[[MpsdClient, GpuUuid, tuple[GpuShare, ...], Deadline], None]


def _begun(
    calls: MpsdClient, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline
) -> None:
    calls.begin(gpu, shares, deadline)()


BOTH_WAYS = pytest.mark.parametrize("apply", [MpsdClient.apply, _begun])


@pytest.fixture
def sharing() -> FakeSharing:
    return FakeSharing(uuid(0), uuid(1))


@BOTH_WAYS
def test_apply_sends_mps_shares_alone(apply: Apply, root: Path, sharing: FakeSharing) -> None:
    wanted = (
        share("b", expose=Expose.FOLDER, priority=1),
        share("a"),
        share("c", sharing=Sharing.TIME_SLICING),
    )
    with serving(root / "mpsd.sock", sharing), client(root / "mpsd.sock") as calls:
        apply(calls, uuid(0), wanted, soon())
        apply(calls, uuid(0), (share("c", sharing=Sharing.TIME_SLICING),), soon())
    assert sharing.applied == [(uuid(0), (wanted[1], wanted[0])), (uuid(0), ())]


@BOTH_WAYS
def test_apply_waits_for_a_supervisor_that_comes_back(
    apply: Apply, root: Path, sharing: FakeSharing
) -> None:
    path = root / "mpsd.sock"
    with client(path) as calls:
        with serving(path, sharing):
            apply(calls, uuid(0), (share("a"),), soon())
        call = Thread(target=apply, args=(calls, uuid(0), (share("b"),), soon()), name="apply")
        call.start()
        with serving(path, sharing):
            call.join(60)
    assert [[each.id for each in shares] for _, shares in sharing.applied] == [["a"], ["b"]]


@BOTH_WAYS
def test_apply_can_be_tried_again_when_nobody_serves(apply: Apply, root: Path) -> None:
    path = root / "mpsd.sock"
    with client(path, ready_s=0.2) as calls, pytest.raises(NotReady) as error:
        apply(calls, uuid(0), (share(),), soon())
    assert error.value.reason is Reason.STATE_UNAVAILABLE
    assert all(text in str(error.value) for text in (uuid(0), str(path), "gpuslice-mpsd"))


@BOTH_WAYS
def test_apply_can_be_tried_again_when_the_supervisor_hangs(apply: Apply, root: Path) -> None:
    path = root / "mpsd.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen()
        with client(path) as calls, pytest.raises(NotReady, match=str(path)):
            apply(calls, uuid(0), (share(),), soon(0.5))


@pytest.mark.parametrize(
    ("error", "kind", "permanent"),
    [
        (AdapterError("foreign pid 7"), AdapterError, False),
        (AdapterError("foreign pid 7", permanent=True), AdapterError, True),
        (NotReady(Reason.OUT_OF_TIME, "foreign pid 7"), NotReady, None),
        (NotReady(Reason.DEVICE_BUSY, "foreign pid 7"), NotReady, None),
    ],
)
@BOTH_WAYS
def test_apply_fails_as_the_supervisor_did(
    apply: Apply,
    root: Path,
    sharing: FakeSharing,
    error: AdapterError | NotReady,
    kind: type[Exception],
    permanent: bool | None,  # noqa: FBT001
) -> None:
    sharing.broken = error
    raised = pytest.raises(kind, match="foreign pid 7")
    path = root / "mpsd.sock"
    with serving(path, sharing), client(path) as calls, raised as seen:
        apply(calls, uuid(0), (share(),), soon())
    assert getattr(seen.value, "permanent", None) == permanent
    assert getattr(seen.value, "reason", None) == getattr(error, "reason", None)


@BOTH_WAYS
def test_apply_is_refused_for_ever_when_a_value_is_impossible(
    apply: Apply, root: Path, sharing: FakeSharing
) -> None:
    raised = pytest.raises(AdapterError, match="compute_percent is 0")
    path = root / "mpsd.sock"
    with serving(path, sharing), client(path) as calls, raised as refused:
        apply(calls, uuid(0), (share(compute_percent=0),), soon())
    assert refused.value.permanent


def test_begun_apply_goes_on_while_nobody_waits_for_it(root: Path, sharing: FakeSharing) -> None:
    path = root / "mpsd.sock"
    with serving(path, sharing), client(path) as calls:
        wait = calls.begin(uuid(0), (share("a"),), soon())
        eventually(lambda: bool(sharing.applied), 30, "the shares were applied")
        wait()


def test_begun_apply_fails_when_the_connection_is_closed_meanwhile(
    root: Path, sharing: FakeSharing
) -> None:
    sharing.gate.clear()
    path = root / "mpsd.sock"
    with serving(path, sharing):
        with client(path) as calls:
            wait = calls.begin(uuid(0), (share("a"),), soon())
            assert sharing.entered.wait(30)
        sharing.gate.set()
        with pytest.raises(AdapterError, match="this process is stopping"):
            wait()
        with pytest.raises(AdapterError, match="this process is stopping"):
            calls.begin(uuid(0), (share("a"),), soon())


def test_abilities_follow_what_was_proved(root: Path, sharing: FakeSharing) -> None:
    node = inventory(*(gpu(number) for number in range(4)), simulated=False)
    sharing.states.set(
        (
            GpuSharing(gpu=uuid(0), proof=Proof(control_only=True)),
            GpuSharing(gpu=uuid(1), proof=Proof(control_only=False, reason="no")),
            GpuSharing(gpu=uuid(2), refusal="process 7 computes on it"),
        )
    )
    with serving(root / "mpsd.sock", sharing), client(root / "mpsd.sock") as calls:
        abilities = calls.abilities(node)
    assert [each.gpu for each in abilities] == [each.uuid for each in node.gpus]
    tiers = [Tier.STANDARD, Tier.COOPERATIVE, None, None]
    assert [each.tier for each in abilities] == tiers
    assert "process 7" in abilities[2].reason
    assert "does not know" in abilities[3].reason


def test_abilities_stay_when_the_supervisor_is_away(root: Path, sharing: FakeSharing) -> None:
    node = inventory(gpu(0))
    with client(root / "mpsd.sock") as calls:
        with pytest.raises(AdapterError, match="gpuslice-mpsd"):
            calls.abilities(node)
        with serving(root / "mpsd.sock", sharing):
            before = eventually(lambda: _abilities(calls, node), 30, "it is heard of")
        assert calls.abilities(node) == before


def _abilities(calls: MpsdClient, node: Inventory) -> tuple[ShareAbility, ...]:
    try:
        return calls.abilities(node)
    except AdapterError:
        return ()


def test_states_come_as_they_are_told(root: Path, sharing: FakeSharing) -> None:
    told = GpuSharing(
        gpu=uuid(0),
        phase=MpsPhase.ACTIVE,
        shares=("a", "b"),
        message="m",
        daemon_pid=7,
        server_pid=8,
        restarts=1,
        clients=0,
        proof=Proof(control_only=None, reason="not tried"),
        multi_user=True,
        refusal="r",
        simulated=True,
    )
    sharing.states.set((told, GpuSharing(gpu=uuid(1), phase=MpsPhase.DRAINING)))
    with serving(root / "mpsd.sock", sharing), client(root / "mpsd.sock") as calls:
        watch = calls.watch()
        states = iter(watch)
        assert next(states) == sharing.states.get()
        sharing.tell(uuid(1), phase=MpsPhase.FREE)
        assert next(states) == sharing.states.get()
        watch.close()
        assert list(states) == []


def test_watch_says_so_when_the_supervisor_is_lost(root: Path, sharing: FakeSharing) -> None:
    path = root / "mpsd.sock"
    with client(path) as calls:
        with pytest.raises(AdapterError, match="gpuslice-mpsd"):
            list(calls.watch())
        with serving(path, sharing):
            states = eventually(lambda: _told(calls), 30, "it tells")
            assert states is not None
        # In good order: it said that it stops.
        assert list(states) == []


def _told(calls: MpsdClient) -> Iterator[tuple[GpuSharing, ...]] | None:
    """Give a stream that has begun."""
    states = iter(calls.watch())
    try:
        next(states)
    except AdapterError:
        return None
    return states


def test_client_is_terminated(root: Path, sharing: FakeSharing) -> None:
    sharing.clients = {4711}
    with serving(root / "mpsd.sock", sharing), client(root / "mpsd.sock") as calls:
        calls.terminate_client(uuid(0), 4711, soon())
        with pytest.raises(NotFound, match="4711"):
            calls.terminate_client(uuid(0), 4711, soon())
    raised = pytest.raises(AdapterError, match="process 4711 keeps GPU")
    with client(root / "mpsd.sock", ready_s=0.1) as calls, raised:
        calls.terminate_client(uuid(0), 4711, soon())


def test_calls_end_when_the_client_is_closed(root: Path, sharing: FakeSharing) -> None:
    with serving(root / "mpsd.sock", sharing), client(root / "mpsd.sock") as calls:
        watch = calls.watch()
        states = iter(watch)
        next(states)
        calls.close()
        with pytest.raises(AdapterError):
            list(states)
        with pytest.raises(AdapterError, match="is closed"):
            calls.apply(uuid(0), (), soon())
        with pytest.raises(AdapterError, match="is closed"):
            calls.watch()
