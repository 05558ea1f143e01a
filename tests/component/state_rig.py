"""A node's state on fakes, with handles on everything around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dra_driver.adapters.clock import SystemClock
from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.plan import PreparePlan
from dra_driver.model.record import PreparedDevice
from dra_driver.plan.naming import spec_name, spec_prefix
from dra_driver.ports import Clock, Json
from dra_driver.state.executor import Executor
from dra_driver.state.node_state import NodeState
from tests import records
from tests.builders import BOOT, DRIVER, ref
from tests.fakes.claims import FakeClaims, FakeEvents, FakePods
from tests.fakes.journal import FakeJournal
from tests.fakes.locks import FakeLocks
from tests.fakes.recorder import FakeRecorder
from tests.fakes.spec_store import FakeSpecStore
from tests.fakes.supervisor import FakeSupervisor, FakeTimeSlicer


class Rig:
    """`plans` counts plannings; `planner` makes them."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.claims = FakeClaims()
        self.pods = FakePods()
        self.events = FakeEvents()
        self.journal = FakeJournal()
        self.locks = FakeLocks(clock=self.clock)
        self.recorder = FakeRecorder()
        self.specs = FakeSpecStore(prefix=spec_prefix(DRIVER))
        self.shares = FakeSupervisor()
        self.time_slicer = FakeTimeSlicer()
        self.plans = 0
        self.planner: Callable[[Json, ClaimRef], PreparePlan] = records.plan
        self.state = self.start()

    def start(self, boot_id: str = BOOT) -> NodeState:
        """A new process on the same world."""
        self.state = NodeState(
            driver=DRIVER,
            claims=self.claims,
            pods=self.pods,
            journal=self.journal,
            locks=self.locks,
            executor=Executor(
                driver=DRIVER,
                boot_id=boot_id,
                specs=self.specs,
                shares=self.shares,
                time_slicer=self.time_slicer,
                clock=self.clock,
                recorder=self.recorder,
            ),
            plan=self._plan,
            boot_id=boot_id,
            clock=self.clock,
            events=self.events,
            recorder=self.recorder,
        )
        return self.state

    def add(self, number: int = 1, **how: Any) -> ClaimRef:
        """Let the API server have a claim."""
        self.claims.add(records.claim(number, **how))
        return ref(number)

    def within(self, seconds: float = 30.0) -> Deadline:
        return Deadline(self.clock.monotonic_s() + seconds)

    def prepare(self, reference: ClaimRef, seconds: float = 30.0) -> tuple[PreparedDevice, ...]:
        return self.state.prepare(reference, self.within(seconds))

    def unprepare(self, reference: ClaimRef, seconds: float = 30.0) -> None:
        self.state.unprepare(reference, self.within(seconds))

    def has_spec(self, reference: ClaimRef) -> bool:
        return spec_name(DRIVER, reference.uid) in self.specs.specs

    def is_clean(self) -> bool:
        """Whether nothing of any claim is left."""
        left = (
            self.journal.entries, self.specs.specs, self.shares.shares, self.time_slicer.intervals,
        )  # fmt: skip
        return not any(left)

    def _plan(self, body: Json, reference: ClaimRef) -> PreparePlan:
        self.plans += 1
        return self.planner(body, reference)
