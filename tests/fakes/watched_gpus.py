"""GPUs with processes, as the watchdog sees them; implements the ports that it looks through."""

from __future__ import annotations

from dataclasses import replace

from dra_driver.errors import AdapterError, NotFound
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import ComputeMode, GpuProcess, GpuSharing
from dra_driver.model.owner import PodClaims, ProcessOwner
from dra_driver.model.record import Record
from tests.builders import uuid


class WatchedGpus:
    """GpuControl, ProcessOwners, PodResources and ClientTerminator of one made-up node.

    Attributes:
        blind: GPUs whose processes cannot be listed.
        unreadable: pids whose owner cannot be read.
        replaced: pids that are another process's whenever one looks.
        stubborn: pids that cannot be ended.
        lingering: pids that are still listed after they were ended.
        terminated: pids in the order in which they were ended.
    """

    def __init__(self) -> None:
        self.listed: dict[GpuUuid, dict[int, GpuProcess]] = {}
        self.owned: dict[int, ProcessOwner] = {}
        self.claims: tuple[PodClaims, ...] | None = ()
        self.records: tuple[Record, ...] | None = ()
        self.states: tuple[GpuSharing, ...] = ()
        self.blind: set[GpuUuid] = set()
        self.unreadable: set[int] = set()
        self.replaced: set[int] = set()
        self.stubborn: set[int] = set()
        self.lingering: set[int] = set()
        self.terminated: list[int] = []

    def run(self, process: GpuProcess, owner: ProcessOwner | None, *, on: int = 0) -> None:
        self.listed.setdefault(uuid(on), {})[process.pid] = process
        if owner is not None:
            self.owned[process.pid] = owner

    def end(self, pid: int) -> None:
        for processes in self.listed.values():
            processes.pop(pid, None)
        self.owned.pop(pid, None)

    def compute_mode(self, gpu: GpuUuid) -> ComputeMode:
        raise AdapterError(f"nobody asks for the compute mode of {gpu}")

    def set_compute_mode(self, gpu: GpuUuid, mode: ComputeMode) -> None:
        raise AdapterError(f"nobody sets the compute mode {mode} of {gpu}")

    def processes(self, gpu: GpuUuid) -> tuple[GpuProcess, ...]:
        if gpu in self.blind:
            raise AdapterError(f"GPU {gpu} is lost")
        return tuple(process for _, process in sorted(self.listed.get(gpu, {}).items()))

    def owner(self, pid: int) -> ProcessOwner | None:
        if pid in self.unreadable:
            raise AdapterError(f"process {pid} cannot be read")
        owner = self.owned.get(pid)
        if owner is not None and pid in self.replaced:
            self.owned[pid] = replace(owner, started=owner.started + 1)
        return owner

    def pods(self, deadline: Deadline) -> tuple[PodClaims, ...]:
        del deadline
        if self.claims is None:
            raise AdapterError("the kubelet is away")
        return self.claims

    def terminate_client(self, gpu: GpuUuid, pid: int, deadline: Deadline) -> None:
        del deadline
        if pid in self.stubborn:
            raise AdapterError(f"process {pid} does not end")
        if pid not in self.listed.get(gpu, {}):
            raise NotFound(f"process {pid} is no client of GPU {gpu}")
        self.terminated.append(pid)
        if pid not in self.lingering:
            self.end(pid)

    def all_records(self) -> tuple[Record, ...]:
        if self.records is None:
            raise AdapterError("the journal cannot be read")
        return self.records
