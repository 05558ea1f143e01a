"""Steps meet their ports: in order, whole sets of shares, and the same way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dra_driver.adapters.claim_markers import MarkerFiles
from dra_driver.adapters.clock import SystemClock
from dra_driver.errors import AdapterError, FatalError, NotReady, Reason
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.record import Record
from dra_driver.model.share import GpuShare
from dra_driver.model.steps import EnsureShare, MarkClaim, needs_intent
from dra_driver.plan.naming import spec_name, spec_prefix
from dra_driver.plan.prepare import plan_unprepare
from dra_driver.ports import ClaimMarkers, StagedSpec
from dra_driver.state.executor import Executor
from tests import records
from tests.builders import BOOT, DRIVER, claim_uid, uuid
from tests.fakes.clock import FakeClock
from tests.fakes.recorder import FakeRecorder
from tests.fakes.spec_store import FakeSpecStore
from tests.fakes.supervisor import FakeSupervisor, FakeTimeSlicer

SOON = Deadline(SystemClock().monotonic_s() + 600)
ONE, TWO = records.record(1), records.record(2)


class Ports:
    def __init__(self, markers: ClaimMarkers | None = None) -> None:
        self.specs = FakeSpecStore(prefix=spec_prefix(DRIVER))
        self.shares = FakeSupervisor()
        self.time_slicer = FakeTimeSlicer()
        self.recorder = FakeRecorder()
        self.clock = FakeClock()
        self.executor = Executor(
            driver=DRIVER,
            boot_id=BOOT,
            specs=self.specs,
            shares=self.shares,
            time_slicer=self.time_slicer,
            clock=self.clock,
            recorder=self.recorder,
            markers=markers,
        )

    def share_ids(self, on: int = 0) -> list[str]:
        return [share.id[:8] for share in self.shares.shares.get(uuid(on), ())]

    def left(self) -> list[str]:
        return [*self.specs.specs, *self.shares.shares, *self.time_slicer.intervals]


@pytest.fixture
def ports() -> Ports:
    return Ports()


def by_uid(*found: Record) -> dict[str, Record]:
    return {record.claim.uid: record for record in found}


def test_run_enforces_the_shares_of_all_records_of_this_boot(ports: Ports) -> None:
    others = by_uid(
        records.record(3, boot_id="another"), ONE, records.record(4, on=1), records.record(1)
    )
    ports.executor.run(TWO, others, SOON)
    assert ports.share_ids() == ["00000001", "00000002"]
    assert ports.share_ids(1) == []


class Overlapping(Ports):
    """`log` tells what happens in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        stage = self.specs.stage

        def begin(
            gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline
        ) -> Callable[[], None]:
            self.log.append("begin")

            def wait() -> None:
                self.log.append("wait")
                self.shares.apply(gpu, shares, deadline)

            return wait

        def staged(name: str, content: str) -> StagedSpec:
            self.log.append("stage")
            return Logged(stage(name, content), self.log)

        self.shares.begin = begin  # type: ignore[method-assign]
        self.specs.stage = staged  # type: ignore[method-assign, assignment]


class Logged:
    def __init__(self, staged: StagedSpec, log: list[str]) -> None:
        self._staged = staged
        self._log = log

    def place(self) -> None:
        self._log.append("place")
        self._staged.place()

    def close(self) -> None:
        self._log.append("close")


def test_run_writes_the_spec_out_while_shares_are_enforced() -> None:
    ports = Overlapping()
    ports.executor.run(ONE, {}, SOON)
    assert ports.log == ["begin", "stage", "wait", "place", "close"]


def test_run_removes_the_spec_that_it_wrote_out_when_shares_cannot_be_enforced() -> None:
    ports = Overlapping()
    ports.shares.broken = AdapterError("away")
    with pytest.raises(AdapterError, match="away"):
        ports.executor.run(ONE, {}, SOON)
    assert ports.log == ["begin", "stage", "wait", "close"]


def test_run_removes_the_spec_that_it_wrote_out_when_the_process_is_to_end() -> None:
    ports = Overlapping()
    first, *rest = ONE.steps
    assert isinstance(first, EnsureShare)
    second = replace(first, share=replace(first.share, gpu=uuid(1)))
    ports.shares.broken = FatalError("the run folder is gone")
    with pytest.raises(FatalError):
        ports.executor.run(replace(ONE, steps=(first, second, *rest)), {}, SOON)
    assert ports.log == ["begin", "begin", "stage", "wait", "wait", "close"]


def test_run_waits_for_shares_that_it_began_when_the_spec_cannot_be_written() -> None:
    ports = Overlapping()

    def full(name: str, content: str) -> StagedSpec:
        raise AdapterError("disk full")

    ports.specs.stage = full  # type: ignore[method-assign, assignment]
    ports.shares.broken = AdapterError("away")
    with pytest.raises(AdapterError, match="disk full"):
        ports.executor.run(ONE, {}, SOON)
    assert ports.log == ["begin", "wait"]
    labels = {"step": "WriteCdiSpec", "direction": "run"}
    assert ports.recorder.counted("steps_total", outcome="failed", **labels) == 1


def test_run_enforces_two_shares_of_one_gpu_at_once() -> None:
    ports = Overlapping()
    first, *rest = ONE.steps
    assert isinstance(first, EnsureShare)
    second = replace(first, share=replace(first.share, id=f"{first.share.id[:-1]}9"))
    ports.executor.run(replace(ONE, steps=(first, second, *rest)), {}, SOON)
    assert ports.log == ["begin", "stage", "wait", "place", "close"]
    assert len(ports.share_ids()) == 2


def test_run_stops_at_the_step_that_fails_and_writes_no_spec_after_it(ports: Ports) -> None:
    ports.shares.broken = AdapterError("away")
    with pytest.raises(AdapterError, match="away"):
        ports.executor.run(ONE, {}, SOON)
    assert not ports.specs.specs
    labels = {"step": "EnsureShare", "direction": "run"}
    assert ports.recorder.counted("steps_total", outcome="failed", **labels) == 1
    assert ports.recorder.counted("steps_total", outcome="ok") == 0


def test_run_begins_nothing_after_the_deadline(ports: Ports) -> None:
    with pytest.raises(NotReady) as caught:
        ports.executor.run(ONE, {}, Deadline(ports.clock.monotonic_s()))
    assert caught.value.reason is Reason.OUT_OF_TIME
    assert ports.shares.calls == 0


@pytest.mark.parametrize("kind", [records.SHARE, records.WHOLE, records.SLOW])
def test_undo_takes_back_what_run_did(ports: Ports, kind: str) -> None:
    record = records.record(kind=kind)
    ports.executor.run(record, {}, SOON)
    assert ports.executor.intact(record)
    ran = ports.recorder.counted("steps_total", direction="run", outcome="ok")
    assert ran == len(record.steps)
    ports.executor.undo(record, plan_unprepare(record, {}), {}, SOON)
    assert not ports.executor.intact(record)
    assert ports.left() == []


def test_undo_leaves_the_shares_of_others(ports: Ports) -> None:
    everyone = by_uid(ONE, TWO)
    ports.executor.run(ONE, everyone, SOON)
    ports.executor.undo(ONE, plan_unprepare(ONE, everyone), everyone, SOON)
    assert ports.share_ids() == ["00000002"]


def test_undo_needs_nothing_to_have_run(ports: Ports) -> None:
    for kind in (records.SHARE, records.WHOLE):
        record = records.record(kind=kind)
        ports.executor.undo(record, plan_unprepare(record, {}), {}, SOON)
    assert ports.left() == []


def test_undo_leaves_a_time_slice_that_the_board_can_never_have_had(ports: Ports) -> None:
    record = records.record(kind=records.SLOW)
    undo = plan_unprepare(record, {})
    ports.time_slicer.broken = AdapterError("busy")
    with pytest.raises(AdapterError, match="busy"):
        ports.executor.undo(record, undo, {}, SOON)
    ports.time_slicer.broken = AdapterError("Not Supported", permanent=True)
    ports.executor.undo(record, undo, {}, SOON)
    with pytest.raises(AdapterError, match="Not Supported"):
        ports.executor.run(record, {}, SOON)


def test_shares_are_told_in_order_whatever_the_records_order(ports: Ports) -> None:
    ports.executor.restore_shares(uuid(0), by_uid(records.record(7), TWO, ONE), SOON)
    assert ports.share_ids() == ["00000001", "00000002", "00000007"]


def test_specs_are_known_by_the_uid_of_their_claim(ports: Ports) -> None:
    ports.executor.restore_specs(TWO)
    ports.executor.restore_specs(ONE)
    ports.specs.specs["other.json"] = ""
    assert ports.executor.claims_with_spec() == (claim_uid(1), claim_uid(2))
    ports.executor.remove_spec(claim_uid(1))
    assert sorted(ports.specs.specs) == [spec_name(DRIVER, claim_uid(2)), "other.json"]


def test_a_spec_that_was_changed_is_not_intact(ports: Ports) -> None:
    ports.executor.restore_specs(ONE)
    ports.specs.specs[spec_name(DRIVER, claim_uid(1))] += " "
    assert not ports.executor.intact(ONE)


def test_claim_is_marked_by_its_step_and_unmarked_with_its_spec(tmp_path: Path) -> None:
    ports = Ports(markers=MarkerFiles(tmp_path))
    step = MarkClaim(claim_uid=claim_uid(1))
    record = replace(ONE, steps=(step, *ONE.steps))

    ports.executor.run(record, {}, SOON)
    mark = tmp_path / "claims" / claim_uid(1)
    assert mark.is_file()
    assert ports.executor.intact(record)
    mark.unlink()
    assert not ports.executor.intact(record)
    ports.executor.run(record, {}, SOON)
    assert not needs_intent(step)
    ports.executor.undo(record, plan_unprepare(record, {}), {}, SOON)
    assert not list((tmp_path / "claims").iterdir())

    ports.executor.restore_specs(record)
    (tmp_path / "claims" / claim_uid(2)).touch()
    assert ports.executor.claims_with_spec() == (claim_uid(1), claim_uid(2))
    for number in (1, 2):
        ports.executor.remove_spec(claim_uid(number))
    assert ports.executor.claims_with_spec() == ()
