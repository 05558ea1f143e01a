"""What the services need from the node, and how they wait for it while the process starts."""

from __future__ import annotations

from threading import BoundedSemaphore
from typing import Protocol

from dra_driver.errors import NotReady, Reason
from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.record import PreparedDevice
from dra_driver.ports import Clock
from dra_driver.state.current import Current


class NodeOperations(Protocol):
    """Both calls are idempotent by claim UID and may come side by side, for one claim too."""

    def prepare(self, ref: ClaimRef, deadline: Deadline) -> tuple[PreparedDevice, ...]:
        """Make the claim's devices usable; a repeat answers the same.

        Raises:
            ClaimError: it cannot be prepared, or not yet.
        """
        ...

    def unprepare(self, ref: ClaimRef, deadline: Deadline) -> None:
        """Undo `prepare`; a claim that is not known is success.

        Raises:
            ClaimError: it cannot be undone now.
        """
        ...


PREPARES_AT_ONCE = 24
"""Fewer than the workers of the DRA server: an unprepare must not wait until prepares that hang on
something, such as an API server that is away, have given up."""

ROOM_WAIT_S = 5.0
"""How long a prepare beyond those waits before it fails, to be tried again."""


class LateOperations:
    """Operations that come to be after the services that call them.

    A failed prepare costs a pod 60 to 90 s, so early calls wait for the node's state rather than
    fail.
    """

    def __init__(self, clock: Clock, *, room_wait_s: float = ROOM_WAIT_S) -> None:
        self._clock = clock
        self._room_wait_s = room_wait_s
        self._current: Current[NodeOperations | None] = Current(None)
        self._room = BoundedSemaphore(PREPARES_AT_ONCE)

    def set(self, operations: NodeOperations) -> None:
        """Let waiting and later calls through."""
        self._current.set(operations)

    def close(self) -> None:
        """Let waiting calls fail now: the process is shutting down."""
        self._current.close()

    def prepare(self, ref: ClaimRef, deadline: Deadline) -> tuple[PreparedDevice, ...]:
        operations = self._ready(ref, deadline)
        if not self._room.acquire(timeout=min(self._room_wait_s, self._left_s(deadline))):
            raise NotReady(
                Reason.NODE_BUSY,
                f"claim {ref} has to wait: {PREPARES_AT_ONCE} claims are being prepared on this "
                "node, and none of them came to an end; the kubelet tries again by itself. If this "
                "lasts, see the driver's log for what they wait for.",
            )
        try:
            return operations.prepare(ref, deadline)
        finally:
            self._room.release()

    def unprepare(self, ref: ClaimRef, deadline: Deadline) -> None:
        self._ready(ref, deadline).unprepare(ref, deadline)

    def _ready(self, ref: ClaimRef, deadline: Deadline) -> NodeOperations:
        operations = self._current.get()
        if operations is None:
            operations = self._current.wait_newer(0, self._left_s(deadline))[1]
        if operations is None:
            raise NotReady(
                Reason.STATE_UNAVAILABLE,
                f"claim {ref} has to wait: the driver is still starting (or stopping) on this node;"
                " the kubelet tries again by itself. If this lasts, see the driver's log.",
            )
        return operations

    def _left_s(self, deadline: Deadline) -> float:
        return deadline.remaining_s(self._clock.monotonic_s())
