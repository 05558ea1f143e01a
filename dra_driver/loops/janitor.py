"""Lets go of claims that nobody will unprepare: deleted while the kubelet had lost them."""

from __future__ import annotations

from threading import Event

from dra_driver import log
from dra_driver.errors import AdapterError, ClaimError, NotFound
from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline
from dra_driver.ports import ClaimReader, Clock, Recorder
from dra_driver.state.node_state import NodeState

_log = log.get(__name__)

_CALL_S = 20.0


class Janitor:
    """Looks at all records every `interval_s`.

    A claim counts as gone when the API server says so, or has another one of its name, in two
    sweeps in a row: after a force deletion the claim goes first, and the kubelet's unprepare, which
    knows that the containers have stopped, is to have its time. A server that cannot be reached
    says nothing about a claim.
    """

    def __init__(
        self,
        *,
        state: NodeState,
        claims: ClaimReader,
        clock: Clock,
        recorder: Recorder,
        interval_s: float,
    ) -> None:
        self._state = state
        self._claims = claims
        self._clock = clock
        self._recorder = recorder
        self._interval_s = interval_s
        self._gone_before: frozenset[str] = frozenset()

    def run(self, stop: Event) -> None:
        """Sweep until `stop` is set; the first sweep comes after one interval."""
        while not stop.wait(self._interval_s):
            self.sweep(stop)

    def sweep(self, stop: Event) -> None:
        """Look at every record once."""
        try:
            records = self._state.records()
        except AdapterError as error:
            _log.warning("Cannot look for stale claims", error=error)
            return
        gone: set[str] = set()
        for record in records:
            if stop.is_set():
                return
            if self._is_gone(record.claim):
                gone.add(record.claim.uid)
                if record.claim.uid in self._gone_before:
                    self._collect(record.claim)
        self._gone_before = frozenset(gone)

    def _is_gone(self, ref: ClaimRef) -> bool:
        try:
            body = self._claims.get_claim(ref.namespace, ref.name, self._deadline())
        except NotFound:
            return True
        except AdapterError as error:
            _log.info("Cannot tell whether a claim still exists", claim=str(ref), error=error)
            return False
        metadata = body.get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, dict) else None
        return isinstance(uid, str) and uid not in ("", ref.uid)

    def _collect(self, ref: ClaimRef) -> None:
        _log.warning("Letting go of a claim that is gone", claim=str(ref), uid=ref.uid)
        try:
            self._state.unprepare(ref, self._deadline())
        except ClaimError as error:
            _log.warning("Cannot let go of a stale claim", claim=str(ref), error=error)
            return
        self._recorder.count("stale_claims_total")

    def _deadline(self) -> Deadline:
        return Deadline(self._clock.monotonic_s() + _CALL_S)
