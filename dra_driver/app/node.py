"""What one node consists of behind the kubelet's sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

from dra_driver.adapters.cdi_dir import CdiFolder
from dra_driver.adapters.claim_markers import MarkerFiles
from dra_driver.adapters.kube import KubeApi, connect
from dra_driver.adapters.locks import FileLocks
from dra_driver.adapters.pod_resources import KubeletPodResources
from dra_driver.adapters.process_owners import ProcOwners
from dra_driver.adapters.record_file import RecordFiles
from dra_driver.app.hardware import Hardware, Loop
from dra_driver.app.node_health import NodeHealth
from dra_driver.app.options import prepare_options, publish_options
from dra_driver.app.pool_builder import PoolBuilder
from dra_driver.loops.broken_states import BrokenStates
from dra_driver.loops.health_monitor import HealthMonitor
from dra_driver.loops.health_rows import HealthRows
from dra_driver.loops.janitor import Janitor
from dra_driver.loops.publisher import Publisher
from dra_driver.loops.sharing_monitor import SharingMonitor
from dra_driver.loops.watchdog import Eyes, Watchdog
from dra_driver.model.device import Inventory
from dra_driver.model.health import HealthRow
from dra_driver.model.record import Record
from dra_driver.plan.naming import spec_prefix
from dra_driver.ports import Clock, Recorder
from dra_driver.settings import Settings
from dra_driver.state.current import Current
from dra_driver.state.executor import Executor
from dra_driver.state.node_state import NodeState
from dra_driver.state.planner import Planner

if TYPE_CHECKING:
    from dra_driver.app.checkpoint_parts import CheckpointParts

FIRST_POOL_S = 30.0
"""How long the first pool waits for the supervisor of shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The parts, none of them running yet.

    Attributes:
        sharing: None where nobody enforces shares.
        seen: what the loops have found out about GPUs.
        inventory: what comes of it; nobody sets it.
        gpu_problem: why the GPUs cannot be read; empty when they can.
    """

    state: NodeState
    publisher: Publisher
    monitor: HealthMonitor
    rows: HealthRows
    broken: BrokenStates
    janitor: Janitor
    sharing: SharingMonitor | None
    watchdog: Watchdog
    checkpoints: CheckpointParts
    api: KubeApi
    seen: NodeHealth
    inventory: Current[Inventory | None]
    gpu_problem: Current[str]

    def loops(self, stopping: Event) -> tuple[tuple[str, Loop], ...]:
        """Name and body, in the order in which they start; nothing is published once `stopping`."""
        sharing = self.sharing
        return (
            ("monitor", self.monitor.run),
            *((("sharing", sharing.run),) if sharing is not None else ()),
            ("publisher", lambda stop: self._publish(stop, stopping)),
            ("health-rows", self.rows.run),
            ("broken-states", self.broken.run),
            ("janitor", self.janitor.run),
            ("watchdog", self.watchdog.run),
            *self.checkpoints.loops(self.publisher.refresh),
        )

    def end_waits(self) -> None:
        """Let nobody wait for news any more: the process is stopping."""
        self.seen.close()
        self.inventory.close()

    def _publish(self, stop: Event, stopping: Event) -> None:
        if self.sharing is not None:
            # On a new node mpsd starts at the same time; GPUs that are offered whole meanwhile
            # stay so for as long as whoever got them.
            self.sharing.wait_known(stopping, FIRST_POOL_S)
        self.publisher.run(stopping)
        stop.wait()

    def close(self) -> None:
        self.api.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBuilder:
    """Puts a node together; nothing is sent, written or started."""

    settings: Settings
    hardware: Hardware
    clock: Clock
    recorder: Recorder
    seen: NodeHealth = field(default_factory=NodeHealth)

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
        boot_id = self.hardware.gpus.boot_id()
        inventory = self.seen.together()
        eyes = self._eyes(lambda: state.records())  # noqa: PLW0108 - made below
        checkpoints = self._checkpoints(api, eyes, inventory, boot_id)
        state = self._state(api, inventory, boot_id, checkpoints)
        publisher = self._publisher(api, state, inventory, checkpoints)
        return Node(
            state=state,
            publisher=publisher,
            monitor=self._monitor(problem, state),
            broken=self._broken(checkpoints, eyes),
            rows=HealthRows(
                inventory=inventory, pool=lambda: publisher.state.get().pool, target=health
            ),
            janitor=self._janitor(api, state),
            sharing=self._sharing(api, state, publisher),
            watchdog=self._watchdog(api, eyes, boot_id),
            checkpoints=checkpoints,
            api=api,
            seen=self.seen,
            inventory=inventory,
            gpu_problem=problem,
        )

    def _state(
        self,
        api: KubeApi,
        inventory: Current[Inventory | None],
        boot_id: str,
        checkpoints: CheckpointParts,
    ) -> NodeState:
        settings, clock, recorder = self.settings, self.clock, self.recorder
        planner = Planner(
            options=prepare_options(settings, node=settings.node_name, boot_id=boot_id),
            inventory=inventory,
            supervisor=self.hardware.sharing.supervisor,
            driver_files=self.hardware.driver_files,
            checkpoints=checkpoints.terms(),
        )
        return NodeState(
            driver=settings.driver_name,
            claims=api.claims,
            pods=api.pods,
            journal=RecordFiles(
                settings.state_dir, settings.run_dir, clock=clock, recorder=recorder
            ),
            locks=FileLocks(settings.state_dir / "locks", clock=clock),
            executor=self._executor(boot_id),
            plan=planner.plan,
            boot_id=boot_id,
            clock=clock,
            events=api.events,
            recorder=recorder,
        )

    def _executor(self, boot_id: str) -> Executor:
        driver = self.settings.driver_name
        return Executor(
            driver=driver,
            boot_id=boot_id,
            specs=CdiFolder(self.settings.cdi_root, prefix=spec_prefix(driver)),
            shares=self.hardware.sharing.supervisor,
            time_slicer=self.hardware.time_slicer,
            clock=self.clock,
            recorder=self.recorder,
            markers=MarkerFiles(self.settings.run_dir),
        )

    def _publisher(
        self,
        api: KubeApi,
        state: NodeState,
        inventory: Current[Inventory | None],
        checkpoints: CheckpointParts,
    ) -> Publisher:
        builder = PoolBuilder(
            self.hardware.sharing.supervisor,
            options=publish_options(self.settings),
            held=state.records,
            burst_allowed=self.settings.allow_burst,
            clock=self.clock,
            patience_s=FIRST_POOL_S,
            checkpointable=checkpoints.checkpointable,
        )
        return Publisher(
            slices=api.slices,
            probe=api.probe,
            inventory=inventory,
            build=builder.build,
            driver=self.settings.driver_name,
            node=self.settings.node_name,
            clock=self.clock,
            recorder=self.recorder,
        )

    def _sharing(
        self, api: KubeApi, state: NodeState, publisher: Publisher
    ) -> SharingMonitor | None:
        if self.hardware.sharing.states is None:
            return None
        return SharingMonitor(
            self.hardware.sharing.states,
            self.seen.states,
            held=state.records,
            assert_shares=lambda deadline: state.assert_shares(
                deadline, gpus=self.seen.known_gpus()
            ),
            on_abilities=publisher.refresh,
            events=api.events,
            clock=self.clock,
            recorder=self.recorder,
        )

    def _eyes(self, records: Callable[[], tuple[Record, ...]]) -> Eyes:
        settings = self.settings
        return Eyes(
            control=self.hardware.control,
            owners=ProcOwners(proc=settings.host_root / "proc", run_dir=str(settings.run_dir)),
            pods=KubeletPodResources(settings.pod_resources_socket, clock=self.clock),
            records=records,
            sharing=self.seen.states.get,
        )

    def _checkpoints(
        self, api: KubeApi, eyes: Eyes, inventory: Current[Inventory | None], boot_id: str
    ) -> CheckpointParts:
        from dra_driver.app.checkpoint_parts import CheckpointBuilder  # noqa: PLC0415 - 40 ms

        return CheckpointBuilder(
            settings=self.settings,
            boot_id=boot_id,
            eyes=eyes,
            inventory=inventory.get,
            clock=self.clock,
            recorder=self.recorder,
        ).build(api)

    def _broken(self, checkpoints: CheckpointParts, eyes: Eyes) -> BrokenStates:
        return BrokenStates(
            operations=checkpoints.host.table.all,
            records=eyes.records,
            owners=eyes.owners,
            target=self.seen.broken,
        )

    def _watchdog(self, api: KubeApi, eyes: Eyes, boot_id: str) -> Watchdog:
        settings = self.settings
        return Watchdog(
            eyes,
            terminator=self.hardware.sharing.terminator,
            events=api.events,
            clock=self.clock,
            recorder=self.recorder,
            boot_id=boot_id,
            interval_s=settings.watchdog_interval_seconds,
        )

    def _monitor(self, problem: Current[str], state: NodeState) -> HealthMonitor:
        return self.seen.monitor(
            self.hardware,
            problem,
            records=state.records,
            settings=self.settings,
            clock=self.clock,
            recorder=self.recorder,
        )

    def _janitor(self, api: KubeApi, state: NodeState) -> Janitor:
        return Janitor(
            state=state,
            claims=api.claims,
            clock=self.clock,
            recorder=self.recorder,
            interval_s=self.settings.janitor_interval_seconds,
        )
