"""From a step to the port that makes it real, forwards and backwards.

Every step may be run or undone again: after a crash nobody knows how far it came. The caller holds
the locks of the GPUs that are touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import assert_never

from dra_driver import log
from dra_driver.errors import AdapterError, NotReady, Reason
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.record import Record
from dra_driver.model.share import GpuShare, TimeSlice
from dra_driver.model.steps import EnsureShare, MarkClaim, SetTimeSlice, Step, WriteCdiSpec
from dra_driver.plan import naming
from dra_driver.ports import (
    ClaimMarkers,
    Clock,
    Recorder,
    ShareSupervisor,
    SpecStore,
    TimeSlicer,
)
from dra_driver.state.ahead import Ahead

_log = log.get(__name__)

Records = Mapping[str, Record]


class Executor:
    """Runs and undoes steps.

    Args:
        driver: the driver's name, which names CDI specs.
        boot_id: of this boot; records of another one hold no share.
        markers: of claims; None: plans mark none.
    """

    def __init__(
        self,
        *,
        driver: str,
        boot_id: str,
        specs: SpecStore,
        shares: ShareSupervisor,
        time_slicer: TimeSlicer,
        clock: Clock,
        recorder: Recorder,
        markers: ClaimMarkers | None = None,
    ) -> None:
        self._driver = driver
        self._boot_id = boot_id
        self._specs = specs
        self._shares = shares
        self._time_slicer = time_slicer
        self._clock = clock
        self._recorder = recorder
        self._markers = markers

    def run(self, record: Record, others: Records, deadline: Deadline) -> None:
        """Run all steps of a record, in order; arguments and errors as of `begun`."""
        with self.begun(record, others, deadline) as finish:
            finish()

    @contextmanager
    def begun(
        self, record: Record, others: Records, deadline: Deadline
    ) -> Iterator[Callable[[], None]]:
        """Begin what of the steps takes its time beside the caller, and give what runs them all.

        Without that what was begun is only awaited.

        Args:
            record: what is to be made real.
            others: records by claim UID; `record` itself among them is not looked at.
            deadline: no step is begun after it.

        Raises:
            NotReady: out of time; running again goes on.
            AdapterError: a step failed.
        """
        self._check_time(record, deadline)
        everyone = {**others, record.claim.uid: record}
        with closing(Ahead()) as ahead:
            self._begin(record, everyone, deadline, ahead)
            yield partial(self._run, record, deadline, ahead)

    def undo(
        self, record: Record, steps: Iterable[Step], others: Records, deadline: Deadline
    ) -> None:
        """Undo `steps` of `record` in the order given; arguments and errors as of `begun`."""
        remaining = {uid: other for uid, other in others.items() if uid != record.claim.uid}
        for step in steps:
            self._measured(self._undo, "undo", step, remaining, deadline)

    def intact(self, record: Record) -> bool:
        """Whether what containers of a prepared record start with stands: CDI spec and mark."""
        return all(map(self._stands, record.steps))

    def restore_specs(self, record: Record) -> None:
        """Write the CDI specs of a record where they do not stand."""
        for step in record.steps:
            if isinstance(step, MarkClaim | WriteCdiSpec):
                self._put(step)

    def restore_shares(self, gpu: GpuUuid, records: Records, deadline: Deadline) -> None:
        """Enforce on a GPU exactly the shares that `records` speak of."""
        self._shares.apply(gpu, self._shares_of(gpu, records), deadline)

    def settle(self) -> None:
        """Let all changes of CDI specs survive a power cut, before anybody is told of them."""
        self._specs.settle()

    def remove_spec(self, claim_uid: str) -> None:
        """Remove the CDI spec of a claim that holds nothing, if there is one."""
        self._specs.remove(naming.spec_name(self._driver, claim_uid))
        if self._markers is not None:
            self._markers.remove(claim_uid)

    def claims_with_spec(self) -> tuple[str, ...]:
        """UIDs of claims of whom a CDI spec or a mark stands, sorted."""
        prefix = naming.spec_prefix(self._driver)
        marked = self._markers.claims() if self._markers is not None else ()
        specs = (name.removeprefix(prefix) for name in self._specs.names())
        return tuple(sorted({*specs, *marked}))

    def _stands(self, step: Step) -> bool:
        match step:
            case WriteCdiSpec(name=name, content=content):
                return self._specs.holds(name, content)
            case MarkClaim(claim_uid=claim_uid):
                return self._markers is None or self._markers.holds(claim_uid)
            case _:
                return True

    def _run(self, record: Record, deadline: Deadline, ahead: Ahead) -> None:
        for step in record.steps:
            self._check_time(record, deadline)
            self._measured(self._run_step, "run", step, ahead)

    def _begin(self, record: Record, records: Records, deadline: Deadline, ahead: Ahead) -> None:
        for step in record.steps:
            try:
                self._begin_step(step, records, deadline, ahead)
            except BaseException:
                self._count(step, "run", "failed")
                raise

    def _begin_step(self, step: Step, records: Records, deadline: Deadline, ahead: Ahead) -> None:
        match step:
            case EnsureShare(share=share):
                shares = self._shares_of(share.gpu, records)
                ahead.begin_shares(
                    share.gpu, partial(self._shares.begin, share.gpu, shares, deadline)
                )
            case WriteCdiSpec(name=name, content=content):
                ahead.stage_spec(name, partial(self._specs.stage, name, content))
            case SetTimeSlice() | MarkClaim():
                pass
            case _ as never:
                assert_never(never)

    def _run_step(self, step: Step, ahead: Ahead) -> None:
        match step:
            case EnsureShare(share=share):
                ahead.end_shares(share.gpu)
            case SetTimeSlice(gpu=gpu, interval=interval):
                self._time_slicer.set_interval(gpu, interval)
            case MarkClaim():
                self._put(step)
            case WriteCdiSpec(name=name):
                ahead.place_spec(name)
            case _ as never:
                assert_never(never)

    def _put(self, step: MarkClaim | WriteCdiSpec) -> None:
        match step:
            case MarkClaim(claim_uid=claim_uid):
                if self._markers is not None:
                    self._markers.place(claim_uid)
            case WriteCdiSpec(name=name, content=content):
                self._specs.write(name, content)
            case _ as never:
                assert_never(never)

    def _undo(self, step: Step, remaining: Records, deadline: Deadline) -> None:
        match step:
            case EnsureShare(share=share):
                self.restore_shares(share.gpu, remaining, deadline)
            case SetTimeSlice(gpu=gpu):
                self._reset_time_slice(gpu)
            case MarkClaim(claim_uid=claim_uid):
                if self._markers is not None:
                    self._markers.remove(claim_uid)
            case WriteCdiSpec(name=name):
                self._specs.remove(name)
            case _ as never:
                assert_never(never)

    def _reset_time_slice(self, gpu: GpuUuid) -> None:
        try:
            self._time_slicer.set_interval(gpu, TimeSlice.DEFAULT)
        except AdapterError as error:
            # A board that can never be set was not set either, and one that is gone has lost it.
            if not error.permanent:
                raise
            _log.info("There is no time slice to reset", gpu=gpu, error=error)

    def _shares_of(self, gpu: GpuUuid, records: Records) -> tuple[GpuShare, ...]:
        shares = {
            step.share
            for record in records.values()
            if record.boot_id == self._boot_id
            for step in record.steps
            if isinstance(step, EnsureShare) and step.share.gpu == gpu
        }
        return tuple(sorted(shares, key=lambda share: share.id))

    def _check_time(self, record: Record, deadline: Deadline) -> None:
        if deadline.remaining_s(self._clock.monotonic_s()) <= 0:
            raise NotReady(
                Reason.OUT_OF_TIME,
                f"claim {record.claim} is not prepared in time: the retry goes on from here",
            )

    def _measured(
        self, act: Callable[..., None], direction: str, step: Step, *given: object
    ) -> None:
        started_s = self._clock.monotonic_s()
        outcome = "failed"
        try:
            act(step, *given)
            outcome = "ok"
        finally:
            seconds = self._clock.monotonic_s() - started_s
            kind = type(step).__name__
            self._recorder.observe("step_seconds", seconds, step=kind, direction=direction)
            self._count(step, direction, outcome)

    def _count(self, step: Step, direction: str, outcome: str) -> None:
        kind = type(step).__name__
        self._recorder.count("steps_total", step=kind, direction=direction, outcome=outcome)
