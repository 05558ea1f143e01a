"""A kubelet's side of the driver protocol, for the demo and for tests.

It finds drivers by their sockets, registers them with the real kubelet's times and texts, calls
them for pods, follows their health, and deletes their ResourceSlices when the real one would. It
knows no API server: the caller says which claims a pod has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from types import TracebackType
from typing import Self

from dra_driver import log
from dra_driver.errors import GpusliceError
from dra_driver.model.record import PreparedDevice
from dra_driver.sim.kubelet_claims import ClaimCache
from dra_driver.sim.kubelet_endpoint import Endpoint
from dra_driver.sim.kubelet_plugins import Plugins
from dra_driver.sim.kubelet_values import (
    HealthReport,
    KubeletClaim,
    KubeletError,
    KubeletTimes,
    Manners,
    RegistrationTry,
)

_log = log.get(__name__)


class FakeKubelet:
    """One node's kubelet; `with` starts and stops it.

    Args:
        root: the kubelet's folder; it watches `plugins_registry` in it.
        wipe: deletes this node's ResourceSlices; may raise GpusliceError and is then tried again.
    """

    def __init__(
        self,
        root: Path,
        *,
        wipe: Callable[[], None],
        times: KubeletTimes | None = None,
        manners: Manners | None = None,
    ) -> None:
        self.registry = root / "plugins_registry"
        self.plugins_folder = root / "plugins"
        self._wipe = wipe
        self._times = times or KubeletTimes()
        self._manners = manners or Manners()
        self._plugins = Plugins(self.registry, times=self._times, manners=self._manners)
        self._claims = ClaimCache(self.endpoint, manners=self._manners)
        self._wipes = _Wipes(self._times)
        self._stop = Event()
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        self.registry.mkdir(parents=True, exist_ok=True)
        self.plugins_folder.mkdir(exist_ok=True)
        self._stop.clear()
        self._wipes.started()
        self._thread = Thread(target=self._run, name="kubelet")
        self._thread.start()

    def stop(self) -> None:
        """End as a kubelet does: connections close, drivers are told nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._plugins.close()

    def restart(self) -> None:
        """Forget registrations and what is prepared, wipe slices, find the drivers again."""
        self.stop()
        self._claims.forget_prepared()
        self.start()

    def endpoint(self, driver: str) -> Endpoint:
        """Where the driver's calls go: the newest that is connected, else the newest.

        Raises:
            KubeletError: the driver is not registered.
        """
        endpoints = self._plugins.of(driver)
        connected = [each for each in endpoints if each.connected]
        if not endpoints:
            raise KubeletError(f"DRA driver {driver} is not registered")
        return (connected or endpoints)[-1]

    def endpoints(self, driver: str) -> tuple[Endpoint, ...]:
        """Registered endpoints of a driver, oldest first."""
        return self._plugins.of(driver)

    def tries(self) -> tuple[RegistrationTry, ...]:
        """All tries to register since construction, oldest first."""
        return self._plugins.tries()

    def prepare(self, pod_uid: str, claims: Iterable[KubeletClaim]) -> None:
        """See ClaimCache.prepare; the caller repeats a failed one (the kubelet: in 60 to 90 s)."""
        self._claims.prepare(pod_uid, claims)

    def unprepare(self, pod_uid: str) -> None:
        """See ClaimCache.unprepare; the caller repeats a failed one (the kubelet: in some 10 s)."""
        self._claims.unprepare(pod_uid)

    def devices(self, uid: str) -> tuple[PreparedDevice, ...]:
        return self._claims.devices(uid)

    def cdi_ids(self, uid: str, *, request: str = "") -> tuple[str, ...]:
        return self._claims.cdi_ids(uid, request=request)

    def health(self, driver: str) -> tuple[HealthReport, ...]:
        """Reports of the newest connected endpoint, by pool and device."""
        return self.endpoint(driver).health()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._plugins.sync(monotonic())
            if self._wipes.due(self._plugins.lost_s(), monotonic()):
                try:
                    self._wipe()
                    self._wipes.done()
                except GpusliceError as error:
                    _log.warning("Cannot delete ResourceSlices yet", error=str(error))
                    self._wipes.failed(monotonic())
            self._stop.wait(self._times.poll_s)


class _Wipes:
    """When the node's slices are to be deleted: after a start, and once per lost driver."""

    def __init__(self, times: KubeletTimes) -> None:
        self._times = times
        self._lock = Lock()
        self._start_due_s: float | None = None
        self._wiped: dict[str, float] = {}
        self._pending: dict[str, float] = {}
        self._not_before_s = 0.0

    def started(self) -> None:
        with self._lock:
            self._start_due_s = monotonic() + self._times.start_wipe_s

    def due(self, lost_s: dict[str, float], now_s: float) -> bool:
        with self._lock:
            if now_s < self._not_before_s:
                return False
            self._pending = {
                driver: at_s
                for driver, at_s in lost_s.items()
                if now_s - at_s >= self._times.wipe_s and self._wiped.get(driver) != at_s
            }
            start = self._start_due_s is not None and now_s >= self._start_due_s
            return start or bool(self._pending)

    def done(self) -> None:
        with self._lock:
            self._wiped.update(self._pending)
            if self._start_due_s is not None and monotonic() >= self._start_due_s:
                self._start_due_s = None

    def failed(self, now_s: float) -> None:
        with self._lock:
            self._not_before_s = now_s + 1.0
