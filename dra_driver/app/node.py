"""What one node consists of behind the kubelet's sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from dra_driver.adapters.cdi_dir import CdiFolder
from dra_driver.adapters.kube import KubeApi, connect
from dra_driver.adapters.locks import FileLocks
from dra_driver.adapters.record_file import RecordFiles
from dra_driver.app.hardware import Hardware
from dra_driver.app.options import prepare_options, publish_options
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


def build_node(
    settings: Settings,
    *,
    hardware: Hardware,
    clock: Clock,
    recorder: Recorder,
    health: Current[tuple[HealthRow, ...]],
) -> Node:
    """Put the parts together; nothing is sent, written or started.

    Raises:
        SettingsError: there is no usable way to the API server.
    """
    inventory: Current[Inventory | None] = Current(None)
    problem = Current("the GPUs have not been read yet")
    api = connect(
        kubeconfig=settings.kubeconfig,
        driver=settings.driver_name,
        node=settings.node_name,
        clock=clock,
    )
    state = _state(settings, hardware, api, inventory, clock=clock, recorder=recorder)
    publisher = Publisher(
        slices=api.slices,
        probe=api.probe,
        inventory=inventory,
        build=_pool_builder(settings, hardware, state),
        driver=settings.driver_name,
        node=settings.node_name,
        clock=clock,
        recorder=recorder,
    )
    return Node(
        state=state,
        publisher=publisher,
        monitor=HealthMonitor(
            hardware.gpus,
            inventory,
            problem=problem,
            clock=clock,
            recorder=recorder,
            policy=XidPolicy.with_ignored(settings.additional_ignored_xids),
            held=lambda: _held_gpus(state),
        ),
        rows=HealthRows(
            inventory=inventory, pool=lambda: publisher.state.get().pool, target=health
        ),
        janitor=Janitor(
            state=state,
            claims=api.claims,
            clock=clock,
            recorder=recorder,
            interval_s=settings.janitor_interval_seconds,
        ),
        api=api,
        inventory=inventory,
        gpu_problem=problem,
    )


def _state(
    settings: Settings,
    hardware: Hardware,
    api: KubeApi,
    inventory: Current[Inventory | None],
    *,
    clock: Clock,
    recorder: Recorder,
) -> NodeState:
    boot_id = hardware.gpus.boot_id()
    planner = Planner(
        options=prepare_options(settings, node=settings.node_name, boot_id=boot_id),
        inventory=inventory,
        supervisor=hardware.supervisor,
        driver_files=hardware.driver_files,
    )
    executor = Executor(
        driver=settings.driver_name,
        boot_id=boot_id,
        specs=CdiFolder(settings.cdi_root, prefix=spec_prefix(settings.driver_name)),
        shares=hardware.supervisor,
        time_slicer=hardware.time_slicer,
        clock=clock,
        recorder=recorder,
    )
    return NodeState(
        claims=api.claims,
        journal=RecordFiles(settings.state_dir, clock=clock, recorder=recorder),
        locks=FileLocks(settings.state_dir / "locks", clock=clock),
        executor=executor,
        plan=planner.plan,
        boot_id=boot_id,
        clock=clock,
        events=api.events,
        recorder=recorder,
    )


def _pool_builder(settings: Settings, hardware: Hardware, state: NodeState) -> BuildPool:
    options = publish_options(settings)

    def build(inventory: Inventory, capability: ApiCapability) -> Pool:
        return build_pool(
            inventory,
            hardware.supervisor.abilities(inventory),
            capability=capability,
            options=options,
            in_use=frozenset(use.device for record in state.records() for use in record.uses),
        )

    return build


def _held_gpus(state: NodeState) -> frozenset[GpuUuid]:
    return frozenset(gpu for record in state.records() for gpu in record.gpus)
