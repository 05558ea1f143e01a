"""Node operations that a test scripts."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event, Lock

from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.record import PreparedDevice

Answer = tuple[PreparedDevice, ...] | Exception


def prepared(uid: str, *, requests: Sequence[str] = ("gpu",), share: str | None = None) -> Answer:
    """The answer for one device of a claim."""
    return (
        PreparedDevice(
            requests=tuple(requests),
            pool="node-a",
            device=f"gpu-{uid[:8]}",
            cdi_ids=(f"gpuslice.io/claim={uid}",),
            share_id=share,
        ),
    )


class Gate:
    """Holds a call of one claim inside the operation."""

    def __init__(self) -> None:
        self.entered = Event()
        self.open = Event()

    def hold(self) -> None:
        self.entered.set()
        assert self.open.wait(30), "nobody opened the gate"


class FakeOperations:
    """Answers from `answers` (by UID, else one device); remembers all calls."""

    def __init__(self, answers: dict[str, Answer] | None = None) -> None:
        self.answers = answers or {}
        self._lock = Lock()
        self._gates: dict[str, Gate] = {}
        self.calls: list[tuple[str, ClaimRef]] = []
        self.deadlines: list[Deadline] = []
        self.finished: list[tuple[str, ClaimRef]] = []

    def gate(self, uid: str) -> Gate:
        """Hold all later calls of this claim until the gate is opened."""
        with self._lock:
            return self._gates.setdefault(uid, Gate())

    def prepare(self, ref: ClaimRef, deadline: Deadline) -> tuple[PreparedDevice, ...]:
        return self._run("prepare", ref, deadline)

    def unprepare(self, ref: ClaimRef, deadline: Deadline) -> None:
        self._run("unprepare", ref, deadline)

    def _run(self, verb: str, ref: ClaimRef, deadline: Deadline) -> tuple[PreparedDevice, ...]:
        with self._lock:
            self.calls.append((verb, ref))
            self.deadlines.append(deadline)
            gate = self._gates.get(ref.uid)
        if gate is not None:
            gate.hold()
        with self._lock:
            self.finished.append((verb, ref))
        answer = self.answers.get(ref.uid, prepared(ref.uid))
        if isinstance(answer, Exception):
            raise answer
        return answer
