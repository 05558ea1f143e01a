"""The demo's node: a folder, an embedded API server and kubelet, and the real plugin process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, TypeVar

from dra_driver.adapters.process import ChildProcess, start_process
from dra_driver.adapters.profiles import resolve_simulate
from dra_driver.app.demo_interruption import Interruption
from dra_driver.app.demo_values import DRIVER, NODE, DemoError, Json
from dra_driver.errors import AdapterError
from dra_driver.sim.api_profiles import V1_37, ApiProfile
from dra_driver.sim.api_server import SimApiServer
from dra_driver.sim.kubelet import FakeKubelet
from dra_driver.sim.kubelet_values import KubeletTimes

T = TypeVar("T")

PROFILE: ApiProfile = V1_37
SIMULATED_NODE = "8xh100-80gb"

_FOLDER_MAX = 60
"""Of the demo's folder: paths of sockets below it have at most 107 bytes."""
_POLL_S = 0.02
_WAIT_S = 30.0
_STOP_S = 15.0
_TIMES = KubeletTimes(poll_s=_POLL_S)


class DemoNode:
    """See `demo_node`; plugin processes come and go.

    Attributes:
        simulation: the file that says what GPUs there are; the plugin follows its changes.
        interruption: ends a wait.
    """

    def __init__(self, root: Path, api: SimApiServer, interruption: Interruption) -> None:
        self.interruption = interruption
        self.root = root
        self.api = api
        self.kubelet = FakeKubelet(root / "k", wipe=self._wipe, times=_TIMES)
        self.cdi = root / "cdi"
        self.state = root / "state"
        self.run = root / "run"
        self.simulation = root / "node.yaml"
        self.kubeconfig = root / "kubeconfig"
        self.log = root / "plugin.log"
        self._plugin: ChildProcess | None = None

    def start_plugin(self) -> int:
        """Start the plugin, and give its process id."""
        child = start_process(
            [sys.executable, "-m", "dra_driver", "plugin", *self._flags()],
            name="the plugin",
            log=self.log,
            environment=_environment(),
        )
        self._plugin = child
        return child.pid

    def kill_plugin(self) -> None:
        """End it with SIGKILL."""
        if self._plugin is not None:
            self._plugin.kill()

    def stop_plugin(self) -> int:
        """End it with SIGTERM, and give its exit status.

        Raises:
            AdapterError: it does not end.
        """
        if self._plugin is None:
            return 0
        self._plugin.signal(signal.SIGTERM)
        return self._plugin.wait(_STOP_S)

    def wait_for(self, condition: Callable[[], T], what: str) -> tuple[T, float]:
        """Wait until a condition is truthy; gives its value and how many seconds that took.

        Raises:
            DemoError: the plugin ended, or it took too long.
            KeyboardInterrupt: somebody wants the demo to end.
        """
        never, start_s = Event(), monotonic()
        while not (value := condition()):
            if self._plugin is not None and (status := self._plugin.status()) is not None:
                raise DemoError(
                    f"the plugin ended with status {status} before {what}; it said:\n{self.tail()}"
                )
            if monotonic() - start_s > _WAIT_S:
                raise DemoError(
                    f"not within {_WAIT_S:g} s: {what}; the plugin said:\n{self.tail()}"
                )
            never.wait(_POLL_S)
            self.interruption.check()
        return value, monotonic() - start_s

    def registered(self) -> bool:
        return any(each.connected for each in self.kubelet.endpoints(DRIVER))

    def slices(self) -> tuple[Json, ...]:
        return self.api.list("resourceslices")

    def devices(self) -> tuple[Json, ...]:
        """All published devices, in their order."""
        return tuple(each for one in self.slices() for each in one["spec"].get("devices", ()))

    def specs(self) -> dict[str, bytes]:
        """CDI specs by file name."""
        return _files(self.cdi, "*.json")

    def journal(self) -> tuple[str, ...]:
        """Names of the journal's entries."""
        return tuple(sorted(_files(self.state / "claims", "*.json")))

    def shares(self) -> tuple[Json, ...]:
        """What the supervisor of MPS enforces, of all GPUs."""
        files = _files(self.run / "mpsd", "*.json")
        return tuple(share for text in files.values() for share in json.loads(text)["shares"])

    def sockets(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.root / "k").rglob("*.sock") if path.is_socket())

    def endpoint(self) -> str:
        """Address of the plugin's own pages; empty while there is none."""
        address = ""
        for entry in self._log_entries():
            if entry.get("event") == "Serving health and metrics":
                address = str(entry["endpoint"])
        return address

    def tail(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-5:])

    def _log_entries(self) -> Iterator[Mapping[str, Any]]:
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("{") and line.endswith("}"):
                yield json.loads(line)

    def _flags(self) -> list[str]:
        values = {
            "node-name": NODE,
            "driver-name": DRIVER,
            "kubeconfig": self.kubeconfig,
            "simulate": self.simulation,
            "kubelet-registrar-directory-path": self.kubelet.registry,
            "kubelet-plugins-directory-path": self.kubelet.plugins_folder,
            "cdi-root": self.cdi,
            "state-dir": self.state,
            "run-dir": self.run,
            "http-endpoint": "127.0.0.1:0",
        }
        return [f"--{name}={value}" for name, value in values.items()]

    def _wipe(self) -> None:
        for each in self.slices():
            self.api.delete("resourceslices", each["metadata"]["name"])


@contextmanager
def demo_node(interruption: Interruption | None = None) -> Iterator[DemoNode]:
    """Run everything but the plugin; whatever happens, nothing is left behind.

    Raises:
        DemoError: there is no place for the folder.
    """
    with ExitStack() as owned:
        root = _folder()
        owned.callback(shutil.rmtree, root, ignore_errors=True)
        api = owned.enter_context(SimApiServer(PROFILE))
        api.create_node(NODE)
        node = DemoNode(root, api, interruption or Interruption())
        shutil.copyfile(resolve_simulate(SIMULATED_NODE), node.simulation)
        api.write_kubeconfig(node.kubeconfig)
        owned.enter_context(node.kubelet)
        owned.callback(_end, node)
        yield node


def _end(node: DemoNode) -> None:
    try:
        node.stop_plugin()
    except AdapterError:
        node.kill_plugin()


def _folder() -> Path:
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > _FOLDER_MAX:
        parent = "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it
    try:
        return Path(tempfile.mkdtemp(prefix="gpuslice-demo-", dir=parent))
    except OSError as error:
        raise DemoError(f"cannot make a temporary folder: {error}; set TMPDIR") from error


def _files(folder: Path, pattern: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob(pattern))}


def _environment() -> dict[str, str]:
    """This process's, without settings that would reach the plugin, and past any proxy."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GPUSLICE_") and name not in {"NODE_NAME", "POD_UID"}
    }
    return own | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
