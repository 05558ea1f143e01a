"""GPUs under MPS in memory: daemons, servers, compute modes and folders, and what goes wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Condition, Event, current_thread

from dra_driver.errors import AdapterError, MpsGone, MpsServerNotFound, NotFound
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import (
    ComputeMode,
    DaemonProcess,
    DesiredShares,
    GpuProcess,
    MpsLimits,
    MpsServer,
    Proof,
    ServerStatus,
)
from dra_driver.model.share import Expose
from dra_driver.mps.world import MpsPorts
from dra_driver.ports import Clock


class Crash(BaseException):
    """The supervisor's process ends here."""


class FakeMps:
    """The world that a supervisor works on; it outlives the supervisor.

    Attributes:
        log: effects in order, "<what> <gpu or share>[ <value>]".
        lost: GPUs that cannot be reached.
        late_clients: what the next questions for clients get instead.
        threads: by effect, the name of the thread that caused it last.
        reads: calls of control programs that change nothing.
        failures: by effect, errors that come instead, one a call.
        gates: by effect and GPU, what the effect waits for.
        waiting: effects that came to a gate.
        crash_after: effects until the supervisor's process ends; None: never.
    """

    def __init__(self, *gpus: str) -> None:
        self.gpus, self.lost = tuple(GpuUuid(gpu) for gpu in gpus), frozenset[GpuUuid]()
        self.modes = dict.fromkeys(self.gpus, ComputeMode.DEFAULT)
        self.processes: dict[GpuUuid, tuple[GpuProcess, ...]] = {}
        self.foreign: dict[GpuUuid, tuple[int, ...]] = {}
        self.daemons: dict[GpuUuid, DaemonProcess] = {}
        self.limits: dict[GpuUuid, MpsLimits] = {}
        self.servers: dict[GpuUuid, MpsServer] = {}
        self.server_limits: dict[GpuUuid, MpsLimits] = {}
        self.uids: dict[GpuUuid, int] = {}
        self.clients: dict[GpuUuid, tuple[int, ...]] = {}
        self.late_clients: dict[GpuUuid, list[tuple[int, ...]]] = {}
        self.folders: dict[str, tuple[GpuUuid, DaemonProcess]] = {}
        self.store: dict[GpuUuid, DesiredShares] = {}
        self.proof = Proof(control_only=True)
        self.new_server = ServerStatus.ACTIVE
        self.log: list[str] = []
        self.reads = 0
        self.threads: dict[str, str] = {}
        self.failures: dict[str, deque[Exception]] = {}
        self.gates: dict[tuple[str, GpuUuid], Event] = {}
        self.waiting: set[str] = set()
        self.crash_after: int | None = None
        self.changed = Condition()
        self._pid = 100

    def ports(
        self, clock: Clock, run_dir: Path, driver: Callable[[], str | None] = lambda: "570.1"
    ) -> MpsPorts:
        return MpsPorts(
            control=_Control(self),
            daemons=_Daemons(self),
            settings=_Settings(self),
            servers=_Servers(self),
            folders=_Folders(self, run_dir),
            prover=_Prover(self),
            store=_Store(self),
            clock=clock,
            run_dir=run_dir,
            gpus=lambda: self.gpus,
            driver_version=driver,
            lost=lambda: self.lost,
        )

    def effect(self, what: str, of: str, value: object = "") -> None:
        """Note an effect, unless it is to fail, to hang or to be the supervisor's last."""
        gate = self.gates.get((what, GpuUuid(of)))
        if gate is not None:
            self.waiting.add(what)
            gate.wait(60)
        self.read(what)
        if self.crash_after is not None:
            if self.crash_after == 0:
                raise Crash
            self.crash_after -= 1
        self.threads[what] = current_thread().name
        self.log.append(f"{what} {of} {value}".rstrip())

    def read(self, what: str) -> None:
        if errors := self.failures.get(what):
            raise errors.popleft()

    def fail(self, what: str, *errors: Exception) -> None:
        self.failures.setdefault(what, deque()).extend(errors)

    def new_pid(self) -> int:
        self._pid += 1
        return self._pid

    def kill_daemon(self, gpu: GpuUuid) -> None:
        with self.changed:
            self.daemons.pop(gpu, None)
            for found in (self.limits, self.servers, self.server_limits, self.uids, self.clients):
                found.pop(gpu, None)
            self.changed.notify_all()

    def daemon(self, gpu: GpuUuid) -> DaemonProcess:
        if gpu not in self.daemons:
            raise MpsGone(f"no daemon answers on GPU {gpu}")
        return self.daemons[gpu]

    def server(self, gpu: GpuUuid, pid: int) -> MpsServer:
        self.daemon(gpu)
        found = self.servers.get(gpu)
        if found is None or found.pid != pid:
            raise MpsServerNotFound(f"Server {pid} not found")
        return found

    def exposed(self, gpu: GpuUuid) -> frozenset[str]:
        leads = (gpu, self.daemons.get(gpu))
        return frozenset(share for share, to in self.folders.items() if to == leads)

    def break_server(self, gpu: GpuUuid, status: ServerStatus = ServerStatus.FAULT) -> None:
        self.servers[gpu] = MpsServer(pid=self.servers[gpu].pid, status=status)


class _Control:
    def __init__(self, world: FakeMps) -> None:
        self._world = world

    def compute_mode(self, gpu: GpuUuid) -> ComputeMode:
        if gpu not in self._world.gpus:
            raise AdapterError(f"GPU {gpu} is lost")
        return self._world.modes[gpu]

    def set_compute_mode(self, gpu: GpuUuid, mode: ComputeMode) -> None:
        self.compute_mode(gpu)
        self._world.effect("mode", gpu, mode.value)
        self._world.modes[gpu] = mode

    def processes(self, gpu: GpuUuid) -> tuple[GpuProcess, ...]:
        return self._world.processes.get(gpu, ())


class _Daemons:
    def __init__(self, world: FakeMps) -> None:
        self._world = world

    def start(self, gpu: GpuUuid, *, multi_user: bool) -> DaemonProcess:
        assert gpu not in self._world.daemons
        self._world.effect("daemon", gpu, "multi-user" if multi_user else "")
        self._world.limits[gpu] = MpsLimits()
        self._world.daemons[gpu] = DaemonProcess(pid=self._world.new_pid(), started=1)
        return self._world.daemons[gpu]

    def find(self, gpu: GpuUuid) -> DaemonProcess | None:
        return self._world.daemons.get(gpu)

    def foreign(self, gpu: GpuUuid) -> tuple[int, ...]:
        return self._world.foreign.get(gpu, ())

    def kill(self, gpu: GpuUuid) -> None:
        if gpu in {*self._world.daemons, *self._world.servers}:
            self._world.effect("kill", gpu)
        self._world.kill_daemon(gpu)

    def wait(self, known: Mapping[GpuUuid, DaemonProcess], timeout_s: float) -> tuple[GpuUuid, ...]:
        def ended() -> tuple[GpuUuid, ...]:
            return tuple(gpu for gpu in known if self._world.daemons.get(gpu) != known[gpu])

        with self._world.changed:
            self._world.changed.wait_for(ended, timeout_s)
            return ended()


class _Settings:
    def __init__(self, world: FakeMps) -> None:
        self._world = world

    def limits(self, gpu: GpuUuid) -> MpsLimits:
        self._world.daemon(gpu)
        self._world.reads += 1
        return self._world.limits[gpu]

    def set_limits(self, gpu: GpuUuid, limits: MpsLimits, server: int | None) -> None:
        self._world.daemon(gpu)
        self._world.effect("limits", gpu, f"{limits.compute_percent}% {limits.memory_mib}M")
        self._world.limits[gpu] = limits
        if server is not None:
            self._world.server(gpu, server)
            self._world.server_limits[gpu] = limits

    def quit(self, gpu: GpuUuid, *, force_after_s: float) -> None:
        self._world.daemon(gpu)
        self._world.effect("quit", gpu)
        self._world.kill_daemon(gpu)


class _Servers:
    def __init__(self, world: FakeMps) -> None:
        self._world = world

    def start(self, gpu: GpuUuid, *, uid: int) -> None:
        self._world.daemon(gpu)
        assert gpu not in self._world.servers
        self._world.effect("server", gpu, uid)
        pid, status = self._world.new_pid(), self._world.new_server
        self._world.servers[gpu] = MpsServer(pid=pid, status=status)
        self._world.server_limits[gpu] = self._world.limits[gpu]
        self._world.uids[gpu] = uid

    def find(self, gpu: GpuUuid) -> MpsServer | None:
        self._world.read("status")
        self._world.reads += 1
        self._world.daemon(gpu)
        return self._world.servers.get(gpu)

    def clients(self, gpu: GpuUuid, server: int) -> tuple[int, ...]:
        self._world.server(gpu, server)
        self._world.reads += 1
        if late := self._world.late_clients.get(gpu):
            return late.pop(0)
        return self._world.clients.get(gpu, ())

    def terminate(self, gpu: GpuUuid, server: int, client: int) -> None:
        self._world.server(gpu, server)
        if client not in self._world.clients.get(gpu, ()):
            raise NotFound(f"process {client} is no client")
        self._world.effect("terminate", gpu, client)

    def stop(self, gpu: GpuUuid, server: int, *, force: bool) -> None:
        self._world.server(gpu, server)
        self._world.effect("stop", gpu, "force" if force else "")
        for found in (self._world.servers, self._world.server_limits, self._world.clients):
            found.pop(gpu, None)


class _Folders:
    def __init__(self, world: FakeMps, run_dir: Path) -> None:
        self._world = world
        self._run_dir = run_dir

    def pipe(self, gpu: GpuUuid) -> Path:
        return self._run_dir / "mps" / gpu / "pipe"

    def expose(self, gpu: GpuUuid, share: str, expose: Expose) -> None:
        daemon = self._world.daemon(gpu)
        self._world.effect("expose", share)
        self._world.folders[share] = (gpu, daemon)

    def hide(self, share: str) -> None:
        self._world.effect("hide", share)
        self._world.folders.pop(share, None)

    def exposed(self, gpu: GpuUuid) -> frozenset[str]:
        return self._world.exposed(gpu)

    def known(self) -> frozenset[str]:
        return frozenset(self._world.folders)


class _Prover:
    def __init__(self, world: FakeMps) -> None:
        self._world = world

    def prove(self, gpu: GpuUuid, folder: Path) -> Proof:
        assert folder.name in self._world.exposed(gpu)
        self._world.effect("prove", gpu)
        return self._world.proof


class _Store:
    def __init__(self, world: FakeMps) -> None:
        self._world = world

    def load(self) -> Mapping[GpuUuid, DesiredShares]:
        return dict(self._world.store)

    def save(self, desired: DesiredShares) -> None:
        self._world.effect("save", desired.gpu)
        self._world.store[desired.gpu] = desired

    def forget(self, gpu: GpuUuid) -> None:
        self._world.effect("forget", gpu)
        self._world.store.pop(gpu, None)
