"""An API server in this process: the subset that the driver talks to, for the demo and for tests.

It keeps what a real one keeps, drops what a real one drops and refuses what a real one refuses
(`api_rules`); the contract tests run on both. There is no authentication: it listens on loopback.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread
from types import TracebackType
from typing import Self

from dra_driver.sim.api_faults import Faults
from dra_driver.sim.api_http import ApiHttpServer, Request
from dra_driver.sim.api_profiles import V1_34, ApiProfile
from dra_driver.sim.api_resources import RESOURCES, Objects, Target
from dra_driver.sim.api_store import Object, ObjectStore, StatusError

__all__ = ["Request", "SimApiServer", "StatusError"]

_LOG_MAX = 100_000


class SimApiServer:
    """Objects survive `stop`; `start` serves them again on the same port.

    Attributes:
        faults: what goes wrong next.
        store: all objects.
    """

    def __init__(self, profile: ApiProfile = V1_34, *, port: int = 0) -> None:
        self.faults = Faults()
        self.store = ObjectStore()
        self._profile = profile
        self._port = port
        self._lock = Lock()
        self._requests: list[Request] = []
        self._objects = Objects(self.store)
        self._http: ApiHttpServer | None = None
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

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Serve; connections are accepted on return."""
        self._http = ApiHttpServer(
            self._port,
            objects=self._objects,
            faults=self.faults,
            profile=self.profile,
            log=self._log,
        )
        self._port = self._http.server_address[1]
        self._thread = Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, name="sim-api-server"
        )
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections and end those that are open, watches too; repeatable."""
        if self._http is None or self._thread is None:
            return
        self._http.closing.set()
        self._http.shutdown()
        self._thread.join()
        self.store.wake()
        self._http.close_all()
        self._http.server_close()
        self._http = self._thread = None

    def profile(self) -> ApiProfile:
        with self._lock:
            return self._profile

    def set_profile(self, profile: ApiProfile) -> None:
        """Be another version from the next request on, as after an upgrade."""
        with self._lock:
            self._profile = profile

    def create(self, resource: str, body: Object, *, namespace: str = "") -> Object:
        """Create an object as a client would; `status` is stored too.

        Raises:
            StatusError: it is there already, or invalid.
        """
        return self._objects.create(self._target(resource, namespace), body, self.profile(), {})

    def get(self, resource: str, name: str, *, namespace: str = "") -> Object:
        return self._objects.get(self._target(resource, namespace, name))

    def list(self, resource: str, *, namespace: str = "") -> tuple[Object, ...]:
        """Objects by namespace and name."""
        items: list[Object] = self._objects.list(self._target(resource, namespace), {})["items"]
        return tuple(items)

    def replace(self, resource: str, body: Object, *, namespace: str = "") -> Object:
        target = self._target(resource, namespace, body["metadata"]["name"])
        return self._objects.replace(target, body, self.profile())

    def replace_status(self, resource: str, body: Object, *, namespace: str = "") -> Object:
        """Store the status of an object, and nothing else of it."""
        target = self._target(resource, namespace, body["metadata"]["name"])
        target = replace(target, subresource="status")
        return self._objects.replace(target, body, self.profile())

    def delete(self, resource: str, name: str, *, namespace: str = "") -> None:
        self._objects.delete(self._target(resource, namespace, name), {})

    def create_node(self, name: str) -> Object:
        return self.create("nodes", {"metadata": {"name": name}})

    def collect_garbage(self) -> None:
        """Delete ResourceSlices whose Node is gone or has another UID, as a control plane does."""
        uids = {node["metadata"]["uid"] for node in self.list("nodes")}
        for each in self.list("resourceslices"):
            owners = each["metadata"].get("ownerReferences") or []
            if owners and not any(owner["uid"] in uids for owner in owners):
                self.delete("resourceslices", each["metadata"]["name"])

    def requests(self) -> tuple[Request, ...]:
        """All requests of clients so far, in order of their answers."""
        with self._lock:
            return tuple(self._requests)

    def writes(self) -> Counter[tuple[str, str]]:
        """Successful writes of clients so far, by verb and resource; dry runs do not count."""
        return Counter(
            (request.verb, request.resource)
            for request in self.requests()
            if request.writes and request.status in {200, 201}
        )

    def write_kubeconfig(self, path: Path) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "simulated", "cluster": {"server": self.url}}],
            "users": [{"name": "driver", "user": {}}],
            "contexts": [
                {"name": "simulated", "context": {"cluster": "simulated", "user": "driver"}}
            ],
            "current-context": "simulated",
        }
        path.write_text(json.dumps(config, indent=2), encoding="utf-8")
        return path

    def _target(self, resource: str, namespace: str, name: str = "") -> Target:
        found = next(each for each in RESOURCES if each.plural == resource)
        return Target(resource=found, namespace=namespace, name=name)

    def _log(self, request: Request) -> None:
        with self._lock:
            if len(self._requests) < _LOG_MAX:
                self._requests.append(request)
