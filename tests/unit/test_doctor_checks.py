"""Looking at a node, which always ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import cast

import pytest

from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.nvml import NvmlGpus
from dra_driver.adapters.nvml_persistence import NvmlPersistence
from dra_driver.app.doctor import run_checks
from dra_driver.app.doctor_api import judge_server
from dra_driver.app.doctor_gpus import GpuChecks, GpuPorts
from dra_driver.errors import AdapterError, DriverNotLoaded, Forbidden, NotFound
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.doctor import Finding, Verdict, ok
from dra_driver.model.health import GpuEvent
from dra_driver.model.mps import ComputeMode, GpuSharing
from dra_driver.ports import Json
from dra_driver.settings import Settings
from tests.builders import gpu

GPU = GpuUuid("GPU-1")


class Gpus:
    """A library of one inventory, or of an error."""

    def __init__(self, inventory: Inventory | AdapterError) -> None:
        self._inventory = inventory

    def inventory(self) -> Inventory:
        if isinstance(self._inventory, AdapterError):
            raise self._inventory
        return self._inventory

    def wait_events(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        return ()

    def boot_id(self) -> str:
        return "boot"


class Probe:
    """An API server that keeps what it is sent, on which one node is."""

    def __init__(self, *, dry_run: AdapterError | None = None) -> None:
        self._dry_run = dry_run

    def server_version(self) -> Json:
        return {"gitVersion": "v1.36.1"}

    def dry_run_slice(self, body: Json) -> Json:
        if self._dry_run is not None:
            raise self._dry_run
        return body

    def node_uid(self) -> str:
        raise NotFound("node a is not there")


class Watch:
    def __init__(self, states: tuple[GpuSharing, ...]) -> None:
        self._states = states

    def __iter__(self) -> Iterator[tuple[GpuSharing, ...]]:
        yield self._states

    def close(self) -> None: ...


class States:
    def __init__(self, *states: GpuSharing) -> None:
        self._states = states

    def watch(self) -> Watch:
        return Watch(self._states)


class Persistent:
    """One GPU stays initialised, others do not."""

    def __init__(self, gpu: GpuUuid) -> None:
        self._gpu = gpu

    def persistent(self, gpu: GpuUuid) -> bool | None:
        return gpu == self._gpu


class Lender:
    """NVML that knows persistence modes; None: the board has none."""

    NVML_FEATURE_ENABLED = 1
    NVMLError_NotSupported = LookupError

    def __init__(self, mode: int | None) -> None:
        self._mode = mode

    @contextmanager
    def lend(self, gpu: GpuUuid, doing: str) -> Iterator[tuple[Lender, GpuUuid]]:
        yield self, gpu

    def nvmlDeviceGetPersistenceMode(self, handle: GpuUuid) -> int:  # noqa: N802
        if self._mode is None:
            raise LookupError(handle)
        return self._mode


class Control:
    """Every GPU is in one mode, without processes."""

    def __init__(self, mode: ComputeMode) -> None:
        self._mode = mode

    def compute_mode(self, gpu: GpuUuid) -> ComputeMode:
        return self._mode

    def set_compute_mode(self, gpu: GpuUuid, mode: ComputeMode) -> None:
        raise AssertionError("the doctor changes nothing")

    def processes(self, gpu: GpuUuid) -> tuple[()]:
        return ()


def test_checks_find_a_mode_that_was_left_over() -> None:
    inventory = Inventory(driver_version="570.1", gpus=(gpu(0),))
    held = GpuSharing(gpu=gpu(0).uuid, shares=("a",))
    modes = [
        _verdict_of_mode(inventory, States(*states))
        for states in ((), (held,), (GpuSharing(gpu=gpu(0).uuid),))
    ]
    assert modes == [Verdict.PROBLEM, Verdict.OK, Verdict.PROBLEM]


def test_checks_say_that_there_is_no_driver() -> None:
    checks = GpuChecks(GpuPorts(library=Gpus(DriverNotLoaded("no driver; load it"))))
    assert [(each.verdict, each.text) for each in checks.gpus()] == [
        (Verdict.PROBLEM, "no driver; load it")
    ]
    assert not [*checks.modes(), *checks.foreign(), *checks.persistence()]


def test_run_checks_turns_failures_into_findings() -> None:
    def fails() -> Finding:
        raise AdapterError("the disk is gone; mend it")

    def fails_later() -> Iterator[Finding]:
        yield ok("b", "fine")
        raise OSError("gone")

    report = run_checks((("a", fails), ("b", fails_later)), timeout_s=30)

    assert [(each.subject, each.verdict, each.text) for each in report.findings] == [
        ("a", Verdict.PROBLEM, "the disk is gone; mend it"),
        ("b", Verdict.OK, "fine"),
        ("b", Verdict.PROBLEM, "gone"),
    ]
    assert not report.sound


def test_run_checks_goes_on_when_one_hangs() -> None:
    let_go = Event()

    def hangs() -> Finding:
        let_go.wait(60)
        return ok("a", "late")

    report = run_checks((("a", hangs), ("b", lambda: ok("b", "fine"))), timeout_s=0.05)
    let_go.set()

    assert report.findings[0].text == "no answer within 0.05 s"


@pytest.mark.parametrize(
    ("probe", "node", "verdicts"),
    [
        (Probe(), "a", "api server ok, DRAConsumableCapacity ok, DRADeviceTaints ok, node problem"),
        (Probe(dry_run=Forbidden("no right")), "a", "api server warning, node problem"),
        (Probe(), "", "node warning"),
    ],
)
def test_judge_server_asks_what_is_kept_and_for_the_node(
    probe: Probe, node: str, verdicts: str
) -> None:
    settings = Settings(node_name=node) if node else Settings()
    found = judge_server(probe, settings=settings, clock=SystemClock())
    assert ", ".join(f"{each.subject} {each.verdict}" for each in found) == verdicts


@pytest.mark.parametrize(("mode", "expected"), [(1, True), (0, False), (None, None)])
def test_persistence_is_that_of_the_gpu(mode: int | None, expected: bool | None) -> None:  # noqa: FBT001
    assert NvmlPersistence(cast("NvmlGpus", Lender(mode))).persistent(GPU) is expected


def test_checks_warn_where_a_gpu_goes_down_in_pauses() -> None:
    library = Gpus(Inventory(driver_version="570.1", gpus=(gpu(0), gpu(1))))
    checks = GpuChecks(GpuPorts(library=library, persistence=Persistent(gpu(0).uuid)))
    list(checks.gpus())
    assert [each.verdict for each in checks.persistence()] == [Verdict.OK, Verdict.WARNING]


def _verdict_of_mode(inventory: Inventory, states: States) -> Verdict:
    ports = GpuPorts(
        library=Gpus(inventory), control=Control(ComputeMode.EXCLUSIVE_PROCESS), states=states
    )
    checks = GpuChecks(ports)
    list(checks.gpus())
    list(checks.sharing())
    (found,) = checks.modes()
    return found.verdict
