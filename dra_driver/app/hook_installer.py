"""Keeps the program gpuslice-hook, and what CRIU is told of it, on the host or off it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock

from dra_driver import log
from dra_driver.adapters.criu_config import CriuConfig
from dra_driver.adapters.durable import DurableFolder
from dra_driver.adapters.hook_files import HookFiles
from dra_driver.errors import AdapterError, FatalError
from dra_driver.plan.criu_config import Installed
from dra_driver.ports import Recorder
from dra_driver.sockets import HeldByAnother, only_process

NOTE = "hook-installed"
"""Name of the file that tells of an earlier installation; it holds the program's path."""

_INTERVAL_S = 60.0
_TRIES = 20

_LOG = log.get(__name__)


class HookInstaller:
    """Installs or uninstalls again and again, and never stands in the way of anything else.

    During an update the older plugin finds the program of the newer one, and leaves it there.

    Args:
        files: the program; raises AdapterError where the settings do not allow it.
        config: of CRIU.
        wanted: it is to be there.
        notes: the state folder. What was not noted there is another plugin's, and stays: one may
            be tried out on a node that has one.
        lock: held while something is changed.
        named: whether a prepared claim names this path; containers do not start where the program
            of their spec is missing.
        recorder: gauges `hook_installed`.
        pause_s: between tries to get the lock, which another plugin holds only briefly.
    """

    def __init__(
        self,
        files: Callable[[], HookFiles],
        config: CriuConfig,
        *,
        wanted: bool,
        notes: DurableFolder,
        lock: Path,
        named: Callable[[str], bool],
        recorder: Recorder,
        pause_s: float = 0.1,
    ) -> None:
        self._files = files
        self._config = config
        self._wanted = wanted
        self._notes = notes
        self._lock = lock
        self._named = named
        self._recorder = recorder
        self._pause_s = pause_s
        self._working = Lock()
        self._path: str | None = None
        self._problem = "it is not installed yet" if wanted else ""

    def path(self) -> str | None:
        """The program's path on the host; None: it cannot be relied on."""
        return self._path

    def installed(self) -> bool:
        """Whether CRIU calls it too."""
        return self._wanted and self._path is not None and not self._problem

    def problem(self) -> str:
        """Why the host is not as it is to be; empty where it is."""
        return self._problem

    def look(self) -> None:
        """Make the host as it is to be; what fails is logged once, and tried again by `run`."""
        with self._working:
            try:
                problem = self._installed() if self._wanted else self._uninstalled()
            except (AdapterError, FatalError) as error:
                problem = str(error)
            self._tell(problem)

    def run(self, stop: Event, changed: Callable[[], None]) -> None:
        """Look again and again until `stop`, and call when `installed` has changed."""
        while not stop.is_set():
            before = self.installed()
            self.look()
            if self.installed() is not before:
                changed()
            stop.wait(_INTERVAL_S)

    def _installed(self) -> str:
        """Gives the problem that is left."""
        files = self._files()
        if self._path is None or not self._stands(files):
            self._alone(lambda: self._install(files))
        return ""

    def _stands(self, files: HookFiles) -> bool:
        try:
            states = self._config.states()
        except AdapterError:
            return False
        scripts = [state.script if isinstance(state, Installed) else "" for _, state in states]
        return set(scripts) == {files.target} and files.exists()

    def _install(self, files: HookFiles) -> None:
        try:
            self._notes.write(NOTE, f"{files.target}\n".encode())
            files.install()
        except AdapterError:
            self._path = None
            raise
        # Whatever becomes of CRIU's configuration: containers that are restored call it too.
        self._path = files.target
        self._config.install(files.target)

    def _uninstalled(self) -> str:
        """Gives the problem that is left."""
        if not self._noted():
            return ""
        files = self._files()
        named = self._named(files.target)
        self._alone(lambda: self._uninstall(files, named=named))
        if named:
            return f"{files.target} stays on the host until claims that were prepared with it end"
        return ""

    def _noted(self) -> bool:
        with self._notes.reported(f"read {NOTE} from"):
            return self._notes.read(NOTE) is not None

    def _uninstall(self, files: HookFiles, *, named: bool) -> None:
        # CRIU first: it must not be told of a program that is gone.
        self._config.uninstall()
        if not named:
            files.uninstall()
            self._notes.unlink(NOTE)

    def _alone(self, work: Callable[[], None]) -> None:
        """Raises FatalError where another process does not come to an end with it."""
        pause = Event()
        for left in reversed(range(_TRIES)):
            try:
                with only_process(self._lock, what="changes the checkpoint hook of the host"):
                    work()
                    return
            except HeldByAnother:
                if not left:
                    raise
                pause.wait(self._pause_s)

    def _tell(self, problem: str) -> None:
        self._recorder.gauge("hook_installed", float(self._wanted and not problem))
        if problem == self._problem:
            return
        self._problem = problem
        if problem:
            about = "installed" if self._wanted else "taken out"
            _LOG.warning(f"The checkpoint hook is not {about}", reason=problem)
        elif self._wanted:
            _LOG.info("Installed the checkpoint hook", program=self._path)
