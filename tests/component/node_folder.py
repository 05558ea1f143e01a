"""A node's state on real files, as one process sees it; and what must always be true of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from dra_driver.adapters.cdi_dir import CdiFolder
from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.durable import DurableFolder
from dra_driver.adapters.locks import FileLocks
from dra_driver.adapters.record_file import RecordFiles
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.record import RecordState
from dra_driver.model.share import GpuShare, ShareAbility, TimeSlice
from dra_driver.model.steps import EnsureShare
from dra_driver.plan.naming import spec_prefix
from dra_driver.ports import ShareSupervisor
from dra_driver.state.executor import Executor
from dra_driver.state.node_state import NodeState
from tests import records
from tests.builders import BOOT, DRIVER
from tests.fakes.claims import FakeClaims, FakeEvents, FakePods
from tests.fakes.recorder import FakeRecorder

CLOCK = SystemClock()
FOREIGN = "nvidia.yaml"


class FileSupervisor:
    """Shares as files, which outlive the process as a real supervisor does."""

    def __init__(self, path: Path) -> None:
        self._folder = DurableFolder(path, setting="--run-dir")

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        if shares:
            ids = json.dumps([share.id for share in shares])
            self._folder.place(f"{gpu}.json", ids.encode())
        else:
            self._folder.unlink(f"{gpu}.json")

    def begin(
        self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline
    ) -> Callable[[], None]:
        return partial(self.apply, gpu, shares, deadline)

    def abilities(self, inventory: Inventory) -> tuple[ShareAbility, ...]:
        return ()


class NoTimeSlices:
    def set_interval(self, gpu: GpuUuid, interval: TimeSlice) -> None:
        raise NotImplementedError


class NodeFolder:
    """Claims 1 to 8 exist, odd ones for a share, even ones for all of a GPU; each on its own GPU.

    With fewer `gpus` they have to share those.
    """

    def __init__(
        self,
        root: Path,
        *,
        supervisor: ShareSupervisor | None = None,
        boot_id: str = BOOT,
        gpus: int = 8,
    ) -> None:
        self.recorder = recorder = FakeRecorder()
        self.cdi, self.entries, self.shares = root / "cdi", root / "state/claims", root / "shares"
        self.intents = root / "run/intents"
        self.cdi.mkdir(parents=True, exist_ok=True)
        (self.cdi / FOREIGN).write_text("theirs")
        claims = FakeClaims()
        for number in range(1, 9):
            claims.add(records.claim(number, kind=kind_of(number), on=(number - 1) % gpus))
        self.state = NodeState(
            driver=DRIVER,
            claims=claims,
            pods=FakePods(),
            journal=RecordFiles(root / "state", root / "run", clock=CLOCK, recorder=recorder),
            locks=FileLocks(root / "state", clock=CLOCK),
            executor=Executor(
                driver=DRIVER,
                boot_id=boot_id,
                specs=CdiFolder(self.cdi, prefix=spec_prefix(DRIVER)),
                shares=supervisor or FileSupervisor(self.shares),
                time_slicer=NoTimeSlices(),
                clock=CLOCK,
                recorder=recorder,
            ),
            plan=records.plan,
            boot_id=boot_id,
            clock=CLOCK,
            events=FakeEvents(),
            recorder=recorder,
        )

    def check(self) -> None:
        """Assert that files agree: records, specs and shares tell of the same claims."""
        found = self.state.records()
        assert all(record.state is RecordState.PREPARED for record in found)
        specs = {f"{spec_prefix(DRIVER)}{record.claim.uid}.json" for record in found}
        assert {path.name for path in self.cdi.glob("[!.]*")} == {*specs, FOREIGN}
        for name in specs:
            assert json.loads((self.cdi / name).read_text())["devices"]
        assert (self.cdi / FOREIGN).read_text() == "theirs"
        assert {path.name for path in self.entries.glob("[!.]*")} == {
            f"{record.claim.uid}.json" for record in found
        }
        assert not list(self.intents.glob("[!.]*"))
        wanted = {
            f"{step.share.gpu}.json": [step.share.id]
            for record in found
            for step in record.steps
            if isinstance(step, EnsureShare)
        }
        present = {path.name: json.loads(path.read_text()) for path in self.shares.glob("[!.]*")}
        assert present == wanted

    def leftovers(self) -> list[str]:
        """Temporary files of writers that died."""
        folders = (self.cdi, self.entries, self.intents)
        return [path.name for folder in folders for path in folder.glob(".*")]


def kind_of(number: int) -> str:
    return records.SHARE if number % 2 else records.WHOLE


def soon() -> Deadline:
    return Deadline(CLOCK.monotonic_s() + 30)
