"""A supervisor over a world in memory; it can be lost and started anew."""

from __future__ import annotations

from pathlib import Path

from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import ComputeMode, GpuSharing, MpsPhase
from dra_driver.model.share import Expose, GpuShare, Sharing
from dra_driver.mps.supervisor import Supervisor
from dra_driver.mps.tending import Tender
from dra_driver.plan.mps import ceilings
from tests.builders import uuid
from tests.fakes.clock import FakeClock
from tests.fakes.mps import FakeMps
from tests.fakes.recorder import FakeRecorder

GPU = uuid(0)
OTHER = uuid(1)
WAIT_S = 60.0


def share(
    name: str,
    percent: int = 25,
    memory_mib: int = 6144,
    *,
    gpu: GpuUuid = GPU,
    expose: Expose = Expose.CONTROL,
) -> GpuShare:
    return GpuShare(
        id=name,
        gpu=gpu,
        sharing=Sharing.MPS,
        compute_percent=percent,
        memory_mib=memory_mib,
        expose=expose,
    )


class MpsRig:
    def __init__(self, *, driver: str | None = "570.1", single_uid: int | None = None) -> None:
        self.world = FakeMps(GPU, OTHER)
        self.clock = FakeClock()
        self.recorder = FakeRecorder()
        self.driver = driver
        self._single_uid = single_uid
        self.supervisor = self._new()

    def restart(self) -> None:
        """Lose the supervisor and all that it knows; the world stays."""
        self.supervisor.close()
        self.supervisor = self._new()

    def close(self) -> None:
        for gate in self.world.gates.values():
            gate.set()
        self.supervisor.close()

    def apply(self, *shares: GpuShare, gpu: GpuUuid = GPU, within_s: float = WAIT_S) -> None:

        self.supervisor.apply(gpu, shares, self.deadline(within_s))

    def deadline(self, within_s: float = WAIT_S) -> Deadline:
        return Deadline(self.clock.monotonic_s() + within_s)

    def tend(self, gpu: GpuUuid = GPU) -> GpuSharing:
        """Look after a GPU as the keeper does, as soon as nobody works on it; gives its state."""
        entry = self.supervisor.table.entry(gpu)
        assert entry.lock.acquire(timeout=WAIT_S)
        entry.lock.release()
        supervisor = self.supervisor
        Tender(supervisor.ports, supervisor.table, supervisor.converger).tend(entry)
        return self.state(gpu)

    def state(self, gpu: GpuUuid = GPU) -> GpuSharing:
        return self.supervisor.board.get(gpu)

    def effects(self) -> list[str]:
        """Effects since the last call, without those on our own store, GPU names left out."""
        found = [line.replace(f" {GPU}", "") for line in self.world.log]
        self.world.log.clear()
        return [line for line in found if line.split()[0] not in {"save", "forget"}]

    def assert_holds(self, *shares: GpuShare, gpu: GpuUuid = GPU) -> None:
        """The GPU holds exactly these shares."""
        world = self.world
        assert self.state(gpu).phase is MpsPhase.ACTIVE
        assert self.state(gpu).shares == tuple(sorted(each.id for each in shares))
        assert world.modes[gpu] is ComputeMode.EXCLUSIVE_PROCESS
        assert world.server_limits[gpu] == world.limits[gpu] == ceilings(shares)
        control = {each.id for each in shares if each.expose is Expose.CONTROL}
        assert world.exposed(gpu) == control

    def assert_free(self, gpu: GpuUuid = GPU, mode: ComputeMode = ComputeMode.DEFAULT) -> None:
        """Nothing is left on the GPU."""
        assert self.state(gpu).phase is MpsPhase.FREE
        assert gpu not in self.world.daemons
        assert self.world.modes[gpu] is mode
        assert gpu not in {to for to, _ in self.world.folders.values()}
        kept = self.world.store.get(gpu)
        assert kept is None or (kept.shares, kept.mode_before) == ((), None)

    def _new(self) -> Supervisor:
        return Supervisor(
            self.world.ports(self.clock, Path("/run/gpuslice"), lambda: self.driver),
            recorder=self.recorder,
            burst_allowed=True,
            single_uid=self._single_uid,
            pause=self.clock.advance,
        )
