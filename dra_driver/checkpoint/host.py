"""The hook of one node: one process at a time has its operations and its sockets."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from dra_driver import log
from dra_driver.checkpoint.engine import Engine
from dra_driver.checkpoint.grpc_service import CheckpointHookServer, CheckpointHookService
from dra_driver.checkpoint.handler import Handler
from dra_driver.checkpoint.keeper import Keeper
from dra_driver.checkpoint.raw_calls import RawCalls
from dra_driver.checkpoint.raw_socket import RawSocket
from dra_driver.checkpoint.table import OperationTable
from dra_driver.checkpoint.told_pods import ToldPods
from dra_driver.checkpoint.world import HookWorld
from dra_driver.sockets import HeldByAnother, only_process

_POLL_S = 0.1
_log = log.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookPaths:
    """Where the hook is served.

    Attributes:
        grpc: of controllers.
        raw: of the program gpuslice-hook.
        lock: held while they are served.
    """

    grpc: Path
    raw: Path
    lock: Path


class HookHost:
    """Two plugins run side by side while one takes over: the later one waits for the other's end.

    Args:
        world: of the node.
        paths: of the sockets.
        uid: who may call the raw socket.
    """

    def __init__(self, world: HookWorld, paths: HookPaths, *, uid: int = 0) -> None:
        self._paths = paths
        self.table = OperationTable(world.store)
        engine = Engine(world, self.table)
        self._keeper = Keeper(engine)
        self.told_pods = ToldPods(world)
        self.handler = Handler(engine, self.told_pods, kick=self._keeper.kick)
        service = CheckpointHookService(self.handler, clock=world.clock)
        self._grpc = CheckpointHookServer(paths.grpc, service)
        calls = RawCalls(self.handler, world.owners.owner)
        self._raw = RawSocket(paths.raw, calls, clock=world.clock, uid=uid)

    def run(self, stop: Event) -> None:
        """Wait for the turn, then serve until `stop`.

        Raises:
            FatalError: a socket cannot be made.
            AdapterError: the operations cannot be read.
        """
        told = False
        while not stop.is_set():
            try:
                with only_process(self._paths.lock, what="serves the checkpoint hook"):
                    self._serve(stop)
                    return
            except HeldByAnother as error:
                if not told:
                    _log.info("Waiting for another process to end", cause=str(error))
                told = True
            stop.wait(_POLL_S)

    def _serve(self, stop: Event) -> None:
        self.table.load()
        with ExitStack() as served:
            self._grpc.start()
            served.callback(self._grpc.stop)
            self._raw.start()
            served.callback(self._raw.stop)
            self._keeper.run(stop)
