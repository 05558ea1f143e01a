"""What the checkpoint hook of a plugin is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import geteuid
from pathlib import Path, PurePosixPath
from threading import Event
from typing import TYPE_CHECKING

from dra_driver import log
from dra_driver.adapters.container_cgroups import ContainerCgroups
from dra_driver.adapters.criu_config import CriuConfig
from dra_driver.adapters.cuda_checkpoint import CudaCheckpoint
from dra_driver.adapters.cuda_tool import CudaTools
from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.durable import DurableFolder
from dra_driver.adapters.hook_files import HookFiles
from dra_driver.adapters.no_cuda import NoCuda
from dra_driver.adapters.operation_store import OperationFiles
from dra_driver.app.hook_installer import HookInstaller
from dra_driver.checkpoint.host import HookHost, HookPaths
from dra_driver.checkpoint.world import HookWorld
from dra_driver.errors import AdapterError, FatalError
from dra_driver.model.device import Inventory
from dra_driver.model.steps import WriteCdiSpec
from dra_driver.plan.checkpoint import check_support
from dra_driver.ports import Clock, CudaProcesses, Recorder
from dra_driver.settings import Settings
from dra_driver.state.planner import CheckpointTerms

if TYPE_CHECKING:
    from dra_driver.adapters.kube import KubeApi
    from dra_driver.app.hardware import Loop
    from dra_driver.loops.watchdog import Eyes

_RETRY_S = 5.0
_TOOLS_S = 60.0
"""How long it is believed what CRIU has."""

_LOG = log.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointParts:
    """The parts, none of them running yet.

    Attributes:
        checkpointable: whether containers on whole GPUs of an inventory can be checkpointed;
            called on the publisher's thread alone.
    """

    host: HookHost
    installer: HookInstaller
    checkpointable: Callable[[Inventory], bool]

    def terms(self) -> CheckpointTerms:
        """What the hook offers to claims."""
        return CheckpointTerms(
            enabled=self.installer.installed,
            hook=self.installer.path,
            operations=self.host.table.by_id,
        )

    def loops(self, changed: Callable[[], None]) -> tuple[tuple[str, Loop], ...]:
        """Name and body; `changed` is called when `checkpointable` may answer otherwise."""
        return (
            ("checkpoint-hook", self._serve),
            ("hook-names", self.host.told_pods.run),
            ("hook-installer", lambda stop: self.installer.run(stop, changed)),
        )

    def _serve(self, stop: Event) -> None:
        """Claims are prepared whether the hook can be served or not."""
        told = ""
        while not stop.is_set():
            try:
                self.host.run(stop)
            except (AdapterError, FatalError) as error:
                if str(error) != told:
                    _LOG.error("Cannot serve the checkpoint hook", reason=str(error))
                told = str(error)
                stop.wait(_RETRY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBuilder:
    """Puts the hook together; nothing is written or started.

    Attributes:
        inventory: as last read; None while there is no GPU driver.
        eyes: on processes and claims.
    """

    settings: Settings
    boot_id: str
    eyes: Eyes
    inventory: Callable[[], Inventory | None]
    clock: Clock
    recorder: Recorder

    def build(self, api: KubeApi) -> CheckpointParts:
        tools = CudaTools(
            self._programs(), host_root=self.settings.host_root, tool=self._tool_path()
        )
        installer = self._installer()
        host = HookHost(
            self._world(api, lambda: not tools.no_plugin()),
            hook_paths(self.settings),
            uid=geteuid(),
        )
        able = _Able(installer, tools, clock=self.clock)
        return CheckpointParts(host=host, installer=installer, checkpointable=able)

    def _world(self, api: KubeApi, plugin: Callable[[], bool]) -> HookWorld:
        return HookWorld(
            node=self.settings.node_name,
            boot_id=self.boot_id,
            cuda=self._cuda(),
            containers=ContainerCgroups(self.settings.host_root),
            owners=self.eyes.owners,
            pods=self.eyes.pods,
            pod_reader=api.pods,
            gpus=self.eyes.control,
            records=self.eyes.records,
            inventory=self.inventory,
            plugin=plugin,
            store=OperationFiles(self.settings.state_dir, self.settings.run_dir),
            events=api.events,
            pod_events=api.pod_events,
            clock=self.clock,
            recorder=self.recorder,
        )

    def _cuda(self) -> CudaProcesses:
        if self.settings.simulate and self._tool_path() is None:
            return NoCuda()
        proc = self.settings.host_root / "proc"
        return CudaCheckpoint(self._programs(), self.clock, proc=proc)

    def _programs(self) -> DriverPrograms:
        return DriverPrograms(driver_root=self.settings.driver_root, run_dir=self.settings.run_dir)

    def _tool_path(self) -> Path | None:
        path = self.settings.cuda_checkpoint_path
        return Path(path) if path else None

    def _installer(self) -> HookInstaller:
        settings = self.settings
        return HookInstaller(
            lambda: hook_files(settings),
            CriuConfig(host_root=settings.host_root, owner=geteuid()),
            wanted=settings.checkpoint_hook,
            notes=DurableFolder(settings.state_dir, setting="--state-dir"),
            lock=settings.run_dir / "hook-install.lock",
            named=self._named,
            recorder=self.recorder,
        )

    def _named(self, path: str) -> bool:
        return any(
            isinstance(step, WriteCdiSpec) and f'"{path}"' in step.content
            for record in self.eyes.records()
            for step in record.steps
        )


def hook_paths(settings: Settings) -> HookPaths:
    """Where a node's hook is served."""
    run_dir = settings.run_dir
    return HookPaths(
        grpc=Path(settings.checkpoint_socket or run_dir / "checkpoint.sock"),
        raw=Path(settings.hook_socket or run_dir / "hook.sock"),
        lock=run_dir / "hook.lock",
    )


def hook_files(settings: Settings) -> HookFiles:
    """The program of a node's hook; raises AdapterError where it cannot be where it is to be."""
    return HookFiles(
        host_root=settings.host_root,
        target=PurePosixPath(settings.hook_path),
        socket=str(hook_paths(settings).raw),
        owner=geteuid(),
    )


class _Able:
    """Whether a node can checkpoint; asks CRIU's parts only from time to time."""

    def __init__(self, installer: HookInstaller, tools: CudaTools, *, clock: Clock) -> None:
        self._installer = installer
        self._tools = tools
        self._clock = clock
        self._known: tuple[float, bool] | None = None

    def __call__(self, inventory: Inventory) -> bool:
        if not self._installer.installed() or check_support(inventory) is not None:
            return False
        return inventory.simulated or self._plugin()

    def _plugin(self) -> bool:
        now_s = self._clock.monotonic_s()
        if self._known is None or now_s - self._known[0] > _TOOLS_S:
            self._known = (now_s, not self._tools.no_plugin())
        return self._known[1]
