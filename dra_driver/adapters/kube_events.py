"""Events about claims and pods: what a user sees of a problem with `kubectl describe`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from threading import Lock

from dra_driver import log
from dra_driver.adapters.kube_transport import Transport, object_path
from dra_driver.errors import AdapterError
from dra_driver.model.claim import ClaimRef, PodRef
from dra_driver.ports import Clock

_LOG = log.get(__name__)
_TEXT_MAX = 1024
_TIMEOUT_S = 2.0
_QUIET_S = 300.0
"""An Event that says the same of the same claim is not written again for so long."""
_REMEMBERED = 512

_Key = tuple[str, str, str]


class KubeEvents:
    """Implements EventSink and PodEvents.

    The kubelet repeats what fails, every 2 s at worst, so Events do not.

    Args:
        transport: to the API server.
        driver: who reports.
        node: where.
        clock: of the Events' times.
    """

    def __init__(self, transport: Transport, *, driver: str, node: str, clock: Clock) -> None:
        self._transport = transport
        self._driver = driver
        self._node = node
        self._clock = clock
        self._lock = Lock()
        self._written: OrderedDict[_Key, float] = OrderedDict()

    def emit(self, claim: ClaimRef, *, reason: str, text: str) -> None:
        about = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": claim.uid,
        }
        self._emit(about, reason, text)

    def emit_pod(self, namespace: str, pod: PodRef, *, reason: str, text: str) -> None:
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod.name}
        if pod.uid:
            about["uid"] = pod.uid
        self._emit(about, reason, text)

    def _emit(self, about: Mapping[str, str], reason: str, text: str) -> None:
        what = f"{about['kind']} {about['namespace']}/{about['name']}"
        if not self._is_new((f"{what} {about.get('uid')}", reason, text)):
            return
        try:
            self._transport.call(
                "POST",
                object_path("/api/v1/namespaces", about["namespace"], "events"),
                what=f"create an Event about {what}",
                body=self._body(about, reason, text),
                timeout_s=_TIMEOUT_S,
            )
        except AdapterError as error:
            _LOG.warning("Could not write an Event", about=what, error=str(error))

    def _is_new(self, key: _Key) -> bool:
        now_s = self._clock.monotonic_s()
        with self._lock:
            last_s = self._written.pop(key, None)
            fresh = last_s is None or now_s - last_s >= _QUIET_S
            self._written[key] = now_s if fresh or last_s is None else last_s
            while len(self._written) > _REMEMBERED:
                self._written.popitem(last=False)
        return fresh

    def _body(self, about: Mapping[str, str], reason: str, text: str) -> dict[str, object]:
        now = datetime.fromtimestamp(self._clock.wall_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "generateName": f"{about['name'][:200].rstrip('.-')}.",
                "namespace": about["namespace"],
            },
            "involvedObject": dict(about),
            "type": "Warning",
            "reason": reason,
            "message": text.encode()[:_TEXT_MAX].decode(errors="ignore"),
            "source": {"component": self._driver, "host": self._node},
            "reportingComponent": self._driver,
            "reportingInstance": self._node,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
