"""The file of a simulated node, followed while it is edited."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from threading import Event, Lock

from dra_driver.adapters.simulated_document import Simulation, parse_simulation
from dra_driver.adapters.simulated_faults import Fault
from dra_driver.adapters.yaml_fields import FieldError, load_yaml
from dra_driver.errors import AdapterError, SettingsError
from dra_driver.model.device import GpuUuid
from dra_driver.model.health import GpuEvent

_SETTLE_S = 0.05
_SETTLE_TRIES = 20

_Signature = tuple[int, int, int]


class SimulationFile:
    """One simulated node, shared by all simulated adapters; safe to use from several threads.

    The file is looked at when something is asked, and read again when its time, size or inode
    changed and it has held still for a moment, so that half a file is not taken for a node.

    Args:
        path: of the YAML document.
        node_name: makes UUIDs that are left to "auto".

    Raises:
        SettingsError: the file cannot be read or is not a valid document.
    """

    def __init__(self, path: Path, *, node_name: str) -> None:
        self._path = path
        self._node_name = node_name
        self._closed = Event()
        self._lock = Lock()
        self._problem = ""
        self._version = 0
        self._fault_uses: Counter[tuple[Fault, int]] = Counter()
        self._delivered: Counter[GpuEvent] = Counter()
        self._signature: _Signature | None = None
        try:
            self._signature = _signature(path)
            self._node = self._load()
        except (OSError, FieldError) as error:
            raise SettingsError(f"--simulate {path}: {_reason(error)}") from error

    def current(self) -> Simulation:
        """The node as the file says now.

        Raises:
            AdapterError: the file is malformed now; `last_good` stays what it was.
        """
        with self._lock:
            self._follow()
            if self._problem:
                raise AdapterError(self._problem)
            return self._node

    def last_good(self) -> Simulation:
        """The node as the last valid content of the file said."""
        with self._lock:
            self._follow()
            return self._node

    def version(self) -> int:
        """Counts changes of the file, to valid content or not."""
        with self._lock:
            self._follow()
            return self._version

    def fault(self, call: str, gpu: GpuUuid | None = None) -> Fault | None:
        """Give the fault that hits this call, if any, and count its use."""
        with self._lock:
            self._follow()
            seen: Counter[Fault] = Counter()
            for fault in self._node.faults:
                key = (fault, seen[fault])
                seen[fault] += 1
                if fault.call != call or fault.gpu not in (None, gpu):
                    continue
                if fault.times is None or self._fault_uses[key] < fault.times:
                    self._fault_uses[key] += 1
                    return fault
            return None

    def new_events(self) -> tuple[GpuEvent, ...]:
        """Give the events that were not given before, in order.

        Equal events are told apart by their number; one that is taken out of the file and put in
        again is new.
        """
        with self._lock:
            self._follow()
            present: Counter[GpuEvent] = Counter()
            new = []
            for event in self._node.events:
                present[event] += 1
                if present[event] > self._delivered[event]:
                    new.append(event)
            self._delivered = present
            return tuple(new)

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond `close`."""
        self._closed.wait(seconds)

    def close(self) -> None:
        """End pauses, now and from now on."""
        self._closed.set()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def _follow(self) -> None:
        try:
            signature = self._settled()
        except OSError as error:
            if self._signature is not None:
                self._signature = None
                self._version += 1
            self._set_problem(error)
            return
        if signature == self._signature:
            return
        self._signature = signature
        self._version += 1
        try:
            self._node = self._load()
            self._problem = ""
        except (OSError, FieldError) as error:
            self._set_problem(error)

    def _settled(self) -> _Signature:
        """The file's signature, once a change has held still."""
        signature = _signature(self._path)
        if signature == self._signature:
            return signature
        for _ in range(_SETTLE_TRIES):
            self._closed.wait(_SETTLE_S)
            before, signature = signature, _signature(self._path)
            if signature == before:
                break
        return signature

    def _set_problem(self, error: OSError | FieldError) -> None:
        self._problem = (
            f"--simulate {self._path}: {_reason(error)}; "
            "the inventory stays as it was until the file is mended"
        )

    def _load(self) -> Simulation:
        try:
            text = self._path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise FieldError(f"byte {error.start + 1} is not UTF-8: save it as UTF-8") from error
        return parse_simulation(load_yaml(text), node_name=self._node_name)


def _signature(path: Path) -> _Signature:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _reason(error: OSError | FieldError) -> str:
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    return str(error)
