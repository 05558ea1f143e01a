"""The kubelet's plugin watcher: from sockets in a folder to registered endpoints."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import grpc

from dra_api.kubelet import pluginregistration_v1_pb2 as pb
from dra_api.kubelet import pluginregistration_v1_pb2_grpc as pb_grpc
from dra_driver import log
from dra_driver.sim.kubelet_endpoint import Endpoint
from dra_driver.sim.kubelet_values import (
    Identity,
    KubeletTimes,
    Manners,
    PluginDetails,
    RegistrationTry,
    refusal,
)

_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)

_log = log.get(__name__)


class Plugins:
    """Registered endpoints per driver; `sync` is called by one thread, the rest by any."""

    def __init__(self, registry: Path, *, times: KubeletTimes, manners: Manners) -> None:
        self._registry = registry
        self._times = times
        self._manners = manners
        self._lock = Lock()
        self._endpoints: list[Endpoint] = []
        self._tries: list[RegistrationTry] = []
        self._backoff: dict[Path, _Backoff] = {}
        self._gone_s: dict[str, float] = {}

    def of(self, driver: str) -> tuple[Endpoint, ...]:
        """Oldest first."""
        with self._lock:
            return tuple(each for each in self._endpoints if each.details.driver == driver)

    def tries(self) -> tuple[RegistrationTry, ...]:
        with self._lock:
            return tuple(self._tries)

    def lost_s(self) -> dict[str, float]:
        """Drivers that had a connection and have none now, with the moment they lost the last."""
        with self._lock:
            for each in self._endpoints:
                if each.connected:
                    self._gone_s.pop(each.details.driver, None)
                elif each.lost_s is not None:
                    self._note_loss(each.details.driver, each.lost_s)
            living = {each.details.driver for each in self._endpoints if each.connected}
            return {driver: at_s for driver, at_s in self._gone_s.items() if driver not in living}

    def sync(self, now_s: float) -> None:
        """De-register what is gone or was made anew, then try what is new or due again."""
        found = dict(_sockets(self._registry))
        with self._lock:
            stale = [
                each
                for each in self._endpoints
                if found.get(each.details.socket) != each.details.identity
            ]
            known = {each.details.socket for each in self._endpoints if each not in stale}
        for endpoint in stale:
            self._remove(endpoint, now_s)
        for path in list(self._backoff):
            if found.get(path) != self._backoff[path].identity:
                del self._backoff[path]
        for path, identity in found.items():
            waiting = self._backoff.get(path)
            if path not in known and (waiting is None or waiting.due_s <= now_s):
                self._try(path, identity, now_s)

    def close(self) -> None:
        """Close all connections; nothing is told to the drivers."""
        with self._lock:
            endpoints, self._endpoints = self._endpoints, []
            self._backoff.clear()
            self._gone_s.clear()
        for endpoint in endpoints:
            endpoint.close()

    def _try(self, path: Path, identity: Identity, now_s: float) -> None:
        with grpc.insecure_channel(f"unix:{path}", options=_OPTIONS) as channel:
            stub = pb_grpc.RegistrationStub(channel)
            driver = ""
            try:
                info = stub.GetInfo(pb.InfoRequest(), timeout=self._times.get_info_s)
                driver = info.name
                error = self._register(stub, info, path=path, identity=identity)
            except grpc.RpcError as failed:
                error = f"failed to get plugin info using RPC GetInfo at socket {path}: {failed}"
        with self._lock:
            self._tries.append(RegistrationTry(socket=path, driver=driver, error=str(error)))
            if error:
                before = self._backoff.get(path)
                wait_s = min(before.wait_s * 2, self._times.backoff_max_s) if before else None
                wait_s = wait_s or self._times.backoff_s
                self._backoff[path] = _Backoff(
                    identity=identity, wait_s=wait_s, due_s=now_s + wait_s
                )
            else:
                self._backoff.pop(path, None)
        _log.info("Tried to register a plugin", socket=str(path), driver=driver, error=str(error))

    def _register(
        self, stub: pb_grpc.RegistrationStub, info: pb.PluginInfo, *, path: Path, identity: Identity
    ) -> str:
        details = PluginDetails(
            socket=path,
            identity=identity,
            driver=info.name,
            endpoint=info.endpoint,
            versions=tuple(info.supported_versions),
        )
        error = refusal(info.type, details, self._manners) or self._duplicate(details)
        if error:
            status = pb.RegistrationStatus(plugin_registered=False, error=str(error))
            stub.NotifyRegistrationStatus(status, timeout=self._times.notify_s)
            return error
        endpoint = Endpoint(details, times=self._times, manners=self._manners)
        with self._lock:
            self._endpoints.append(endpoint)
        try:
            status = pb.RegistrationStatus(plugin_registered=True)
            stub.NotifyRegistrationStatus(status, timeout=self._times.notify_s)
        except grpc.RpcError as failed:
            self._remove(endpoint, None)
            return f"failed to send registration status at socket {path}: {failed}"
        return ""

    def _duplicate(self, details: PluginDetails) -> str:
        if any(each.details.endpoint == details.endpoint for each in self.of(details.driver)):
            return (
                "RegisterPlugin error -- plugin registration failed with err: endpoint"
                f" {details.endpoint} already registered for DRA driver plugin {details.driver}"
            )
        return ""

    def _remove(self, endpoint: Endpoint, now_s: float | None) -> None:
        with self._lock:
            self._endpoints.remove(endpoint)
            if now_s is not None and (endpoint.connected or endpoint.lost_s is not None):
                self._note_loss(endpoint.details.driver, endpoint.lost_s or now_s)
        endpoint.close()

    def _note_loss(self, driver: str, at_s: float) -> None:
        # The newest counts: a connection may have come and gone between two looks.
        self._gone_s[driver] = max(at_s, self._gone_s.get(driver, at_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Backoff:
    identity: Identity
    wait_s: float
    due_s: float


def _sockets(folder: Path) -> Iterator[tuple[Path, Identity]]:
    """Sockets in the folder and below, without hidden names, sorted by path."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in files if not name.startswith(".")):
            path = Path(parent, name)
            try:
                status = path.lstat()
            except OSError:
                continue
            if stat.S_ISSOCK(status.st_mode):
                yield path, (status.st_ino, status.st_ctime_ns)
