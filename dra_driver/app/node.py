"""What one node consists of behind the kubelet's sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from dra_driver.adapters.cdi_dir import CdiFolder
from dra_driver.adapters.kube import KubeApi, connect
from dra_driver.adapters.locks import FileLocks
from dra_driver.adapters.record_file import RecordFiles
from dra_driver.app.hardware import Hardware
from dra_driver.app.options import prepare_options, publish_options
from dra_driver.errors import AdapterError
from dra_driver.loops.health_monitor import HealthMonitor
from dra_driver.loops.health_rows import HealthRows
from dra_driver.loops.janitor import Janitor
from dra_driver.loops.publisher import Publisher
from dra_driver.loops.slice_sync import BuildPool
from dra_driver.model.capability import ApiCapability
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.health import HealthRow
from dra_driver.model.pool import Pool
from dra_driver.plan.health import XidPolicy
from dra_driver.plan.naming import spec_prefix
from dra_driver.plan.slices import build_pool
from dra_driver.ports import Clock, Recorder
from dra_driver.settings import Settings
from dra_driver.state.current import Current
from dra_driver.state.executor import Executor
from dra_driver.state.node_state import NodeState
from dra_driver.state.planner import Planner

Loop = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The parts, none of them running yet.

    Attributes:
        inventory: newest one, or None while there is no GPU driver.
        gpu_problem: why the GPUs cannot be read; empty when they can.
    """

    state: NodeState
    publisher: Publisher
    monitor: HealthMonitor
    rows: HealthRows
    janitor: Janitor
    api: KubeApi
    inventory: Current[Inventory | None]
    gpu_problem: Current[str]

    def loops(self) -> tuple[tuple[str, Loop], ...]:
        """Name and body, in the order in which they start."""
        return (
            ("monitor", self.monitor.run),
            ("publisher", self.publisher.run),
            ("health-rows", self.rows.run),
            ("janitor", self.janitor.run),
        )

    def close(self) -> None:
        self.api.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBuilder:
    """Puts a node together; nothing is sent, written or started."""

    settings: Settings
    hardware: Hardware
    clock: Clock
    recorder: Recorder
    inventory: Current[Inventory | None] = field(default_factory=lambda: Current(None))

    def build(self, health: Current[tuple[HealthRow, ...]]) -> Node:
        """Give the parts; `health` is what the kubelet's streams send.

        Raises:
            SettingsError: there is no usable way to the API server.
        """
        problem = Current("the GPUs have not been read yet")
        api = connect(
            kubeconfig=self.settings.kubeconfig,
            driver=self.settings.driver_name,
            node=self.settings.node_name,
            clock=self.clock,
        )
        state = self._state(api)
        publisher = self._publisher(api, state)
        return Node(
            state=state,
            publisher=publisher,
            monitor=self._monitor(problem, state),
            rows=HealthRows(
                inventory=self.inventory, pool=lambda: publisher.state.get().pool, target=health
            ),
            janitor=self._janitor(api, state),
            api=api,
            inventory=self.inventory,
            gpu_problem=problem,
        )

    def _state(self, api: KubeApi) -> NodeState:
        settings = self.settings
        boot_id = self.hardware.gpus.boot_id()
        planner = Planner(
            options=prepare_options(settings, node=settings.node_name, boot_id=boot_id),
            inventory=self.inventory,
            supervisor=self.hardware.supervisor,
            driver_files=self.hardware.driver_files,
        )
        return NodeState(
            driver=settings.driver_name,
            claims=api.claims,
            pods=api.pods,
            journal=RecordFiles(settings.state_dir, clock=self.clock, recorder=self.recorder),
            locks=FileLocks(settings.state_dir / "locks", clock=self.clock),
            executor=self._executor(boot_id),
            plan=planner.plan,
            boot_id=boot_id,
            clock=self.clock,
            events=api.events,
            recorder=self.recorder,
        )

    def _executor(self, boot_id: str) -> Executor:
        driver = self.settings.driver_name
        return Executor(
            driver=driver,
            boot_id=boot_id,
            specs=CdiFolder(self.settings.cdi_root, prefix=spec_prefix(driver)),
            shares=self.hardware.supervisor,
            time_slicer=self.hardware.time_slicer,
            clock=self.clock,
            recorder=self.recorder,
        )

    def _publisher(self, api: KubeApi, state: NodeState) -> Publisher:
        return Publisher(
            slices=api.slices,
            probe=api.probe,
            inventory=self.inventory,
            build=self._pool_builder(state),
            driver=self.settings.driver_name,
            node=self.settings.node_name,
            clock=self.clock,
            recorder=self.recorder,
        )

    def _pool_builder(self, state: NodeState) -> BuildPool:
        options = publish_options(self.settings)

        def build(inventory: Inventory, capability: ApiCapability) -> Pool:
            return build_pool(
                inventory,
                self.hardware.supervisor.abilities(inventory),
                capability=capability,
                options=options,
                in_use=frozenset(use.device for record in state.records() for use in record.uses),
            )

        return build

    def _monitor(self, problem: Current[str], state: NodeState) -> HealthMonitor:
        return HealthMonitor(
            self.hardware.gpus,
            self.inventory,
            problem=problem,
            clock=self.clock,
            recorder=self.recorder,
            policy=XidPolicy.with_ignored(self.settings.additional_ignored_xids),
            held=lambda: self._held_gpus(state),
        )

    def _held_gpus(self, state: NodeState) -> frozenset[GpuUuid]:
        try:
            return frozenset(gpu for record in state.records() for gpu in record.gpus)
        except AdapterError:
            # While the journal cannot be read, no GPU may vanish: any of them may be held.
            known = self.inventory.get()
            return frozenset(gpu.uuid for gpu in known.gpus) if known is not None else frozenset()

    def _janitor(self, api: KubeApi, state: NodeState) -> Janitor:
        return Janitor(
            state=state,
            claims=api.claims,
            clock=self.clock,
            recorder=self.recorder,
            interval_s=self.settings.janitor_interval_seconds,
        )
