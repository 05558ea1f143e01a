"""A node with containers for the checkpoint hook."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from threading import Event, Lock

from dra_driver.checkpoint.world import HookWorld
from dra_driver.errors import AdapterError, CudaFailed, NotFound, OutOfTime
from dra_driver.model.checkpoint import ContainerMemory
from dra_driver.model.claim import ClaimRef, PodRef
from dra_driver.model.cuda import CudaState, DeviceMapping, ProcessRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.mps import ComputeMode, GpuProcess
from dra_driver.model.owner import PodClaims, ProcessOwner
from dra_driver.model.record import Record
from dra_driver.ports import Json
from tests.builders import BOOT, NODE, gpu, inventory
from tests.fakes.clock import FakeClock
from tests.fakes.operation_store import MemoryStore
from tests.fakes.recorder import FakeRecorder

_MOVES = {
    "lock": (CudaState.RUNNING, CudaState.LOCKED),
    "checkpoint": (CudaState.LOCKED, CudaState.CHECKPOINTED),
    "restore": (CudaState.CHECKPOINTED, CudaState.LOCKED),
    "unlock": (CudaState.LOCKED, CudaState.RUNNING),
}


@dataclass
class FakeContainer:
    """A container: its first process is that of the lowest pid.

    Attributes:
        cuda: state by pid of those that use CUDA.
    """

    id: str
    pids: list[int]
    pod_uid: str = "11111111-2222-4333-8444-555555555555"
    claims: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    cuda: dict[int, CudaState] = field(default_factory=dict)
    gpu_bytes: dict[int, int] = field(default_factory=dict)
    frozen: bool = False

    @property
    def init(self) -> ProcessRef:
        return ref_of(min(self.pids))


def ref_of(pid: int) -> ProcessRef:
    return ProcessRef(pid=pid, started=pid * 10)


class FakeNode:
    """Containers, CUDA, the kubelet and the API server of one node; implements their ports.

    Attributes:
        broken: CUDA calls that fail, by name, with what they raise.
        held: CUDA calls that wait for it, by name.
        runtimes: pids of runtimes that are at work.
        asked: deadlines of the questions to the kubelet.
    """

    def __init__(self, *containers: FakeContainer) -> None:
        self.lock_of_fakes = Lock()
        self.containers = {each.id: each for each in containers}
        self.broken: dict[str, AdapterError] = {}
        self.held: dict[str, Event] = {}
        self.runtimes: set[int] = set()
        self.calls: list[tuple[str, int]] = []
        self.mappings: list[tuple[DeviceMapping, ...]] = []
        self.killed: list[int] = []
        self.unkillable = False
        self.left = ContainerMemory(available_bytes=64 << 30)
        self.told: tuple[PodClaims, ...] = ()
        self.kubelet_away = False
        self.asked: list[Deadline] = []
        self.pods_by_name: dict[tuple[str, str], Json] = {}
        self.events: list[tuple[str, str, str]] = []

    # CudaProcesses
    def state(self, process: ProcessRef, deadline: Deadline) -> CudaState | None:
        self._called("state", process)
        container = self._container(process.pid)
        if container is None:
            raise AdapterError(f"process {process.pid} has ended")
        if container.frozen and process.pid in container.cuda:
            raise OutOfTime(f"process {process.pid} does not answer")
        return container.cuda.get(process.pid)

    def lock(self, process: ProcessRef, deadline: Deadline) -> None:
        self._moved("lock", process)

    def checkpoint(self, process: ProcessRef, deadline: Deadline) -> None:
        self._moved("checkpoint", process)

    def restore(
        self, process: ProcessRef, mapping: tuple[DeviceMapping, ...], deadline: Deadline
    ) -> None:
        self.mappings.append(mapping)
        self._moved("restore", process)

    def unlock(self, process: ProcessRef, deadline: Deadline) -> None:
        self._moved("unlock", process)

    # Containers
    def find(self, container_id: str) -> ProcessRef | None:
        container = self.containers.get(container_id)
        return container.init if container is not None and container.pids else None

    def processes(self, init: ProcessRef) -> tuple[ProcessRef, ...]:
        container = self._container(init.pid)
        return tuple(ref_of(pid) for pid in sorted(container.pids)) if container else ()

    def frozen(self, init: ProcessRef) -> bool:
        container = self._container(init.pid)
        return container is not None and container.frozen

    def memory(self, init: ProcessRef) -> ContainerMemory:
        return self.left

    def kill(self, processes: tuple[ProcessRef, ...]) -> None:
        for each in processes:
            self.killed.append(each.pid)
            container = self._container(each.pid)
            if container is not None and not self.unkillable:
                container.pids.remove(each.pid)

    # ProcessOwners
    def owner(self, pid: int) -> ProcessOwner | None:
        container = self._container(pid)
        if container is None:
            alive = pid in self.runtimes
            return ProcessOwner(pid=pid, started=pid * 10) if alive else None
        return ProcessOwner(
            pid=pid,
            started=pid * 10,
            pod_uid=container.pod_uid,
            container_id=container.id,
            shares=container.shares,
            claims=container.claims,
        )

    # PodResources, PodReader
    def pods(self, deadline: Deadline) -> tuple[PodClaims, ...]:
        self.asked.append(deadline)
        if self.kubelet_away:
            raise AdapterError("the kubelet does not answer")
        return self.told

    def get_pod(self, namespace: str, name: str, deadline: Deadline) -> Json:
        found = self.pods_by_name.get((namespace, name))
        if found is None:
            raise NotFound(f"pod {namespace}/{name} does not exist")
        return found

    # EventSink, PodEvents
    def emit(self, claim: ClaimRef, *, reason: str, text: str) -> None:
        self.events.append((str(claim), reason, text))

    def emit_pod(self, namespace: str, pod: PodRef, *, reason: str, text: str) -> None:
        self.events.append((f"{namespace}/{pod.name}", reason, text))

    def states(self, container_id: str) -> list[CudaState]:
        return [state for _, state in sorted(self.containers[container_id].cuda.items())]

    def moves(self) -> list[tuple[str, int]]:
        """CUDA calls that changed something, in their order."""
        return [call for call in self.calls if call[0] != "state"]

    def _moved(self, name: str, process: ProcessRef) -> None:
        self._called(name, process)
        container = self._container(process.pid)
        before, after = _MOVES[name]
        if container is None or container.cuda.get(process.pid) is not before:
            raise CudaFailed(f"CUDA_ERROR_ILLEGAL_STATE: {name} of {process.pid}")
        container.cuda[process.pid] = after

    def _called(self, name: str, process: ProcessRef) -> None:
        with self.lock_of_fakes:
            self.calls.append((name, process.pid))
        if name in self.held:
            assert self.held[name].wait(60), f"nobody let {name} go on"
        if name in self.broken:
            raise self.broken[name]

    def _container(self, pid: int) -> FakeContainer | None:
        return next((each for each in self.containers.values() if pid in each.pids), None)


class FakeGpus:
    """`GpuControl`: GPUs that tell the processes of all containers."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    def compute_mode(self, gpu: GpuUuid) -> ComputeMode:
        return ComputeMode.DEFAULT

    def set_compute_mode(self, gpu: GpuUuid, mode: ComputeMode) -> None:
        raise AssertionError("the hook sets no modes")

    def processes(self, gpu: GpuUuid) -> tuple[GpuProcess, ...]:
        return tuple(
            GpuProcess(pid=pid, memory_bytes=container.gpu_bytes.get(pid, 1 << 30), mps=False)
            for container in self._node.containers.values()
            for pid, state in sorted(container.cuda.items())
            if state is not CudaState.CHECKPOINTED
        )


@dataclass
class FakeHook:
    """All that a hook's world is made of, to be changed by a test."""

    node: FakeNode
    records: tuple[Record, ...] = ()
    inventory: Inventory | None = field(default_factory=lambda: inventory(gpu(0), gpu(1)))
    plugin: bool = True
    plugin_asked: int = 0
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: FakeClock = field(default_factory=FakeClock)
    recorder: FakeRecorder = field(default_factory=FakeRecorder)
    boot_id: str = BOOT

    def world(self) -> HookWorld:
        return HookWorld(
            node=NODE,
            boot_id=self.boot_id,
            cuda=self.node,
            containers=self.node,
            owners=self.node,
            pods=self.node,
            pod_reader=self.node,
            gpus=FakeGpus(self.node),
            records=lambda: self.records,
            inventory=lambda: self.inventory,
            plugin=self._plugin,
            store=self.store,
            events=self.node,
            pod_events=self.node,
            clock=self.clock,
            recorder=self.recorder,
        )

    def _plugin(self) -> bool:
        self.plugin_asked += 1
        return self.plugin


def with_claims(records: Iterable[Record], **changes: object) -> tuple[Record, ...]:
    return tuple(replace(each, **changes) for each in records)  # type: ignore[arg-type]
