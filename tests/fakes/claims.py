"""Fakes of the API server's part in prepare: claims and pods to read, and Events."""

from __future__ import annotations

from dra_driver.errors import AdapterError, NotFound
from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline
from dra_driver.ports import Json


class FakeClaims:
    """Claims by namespace and name; `down`: an error that every read raises while it is set."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, str], Json] = {}
        self.reads = 0
        self.down: AdapterError | None = None

    def add(self, body: Json) -> None:
        metadata = body["metadata"]
        self._claims[metadata["namespace"], metadata["name"]] = body

    def remove(self, ref: ClaimRef) -> None:
        self._claims.pop((ref.namespace, ref.name), None)

    def get_claim(self, namespace: str, name: str, deadline: Deadline) -> Json:
        self.reads += 1
        if self.down is not None:
            raise self.down
        body = self._claims.get((namespace, name))
        if body is None:
            raise NotFound(f"there is no claim {namespace}/{name}")
        return body


class FakePods:
    """Pods by namespace and name; `down`: an error that every read raises while it is set."""

    def __init__(self) -> None:
        self._pods: dict[tuple[str, str], Json] = {}
        self.reads: list[str] = []
        self.down: AdapterError | None = None

    def add(self, body: Json) -> None:
        metadata = body["metadata"]
        self._pods[metadata["namespace"], metadata["name"]] = body

    def get_pod(self, namespace: str, name: str, deadline: Deadline) -> Json:
        self.reads.append(name)
        if self.down is not None:
            raise self.down
        body = self._pods.get((namespace, name))
        if body is None:
            raise NotFound(f"there is no pod {namespace}/{name}")
        return body


class FakeEvents:
    """Events in the order in which they were emitted."""

    def __init__(self) -> None:
        self.emitted: list[tuple[ClaimRef, str, str]] = []

    def emit(self, claim: ClaimRef, *, reason: str, text: str) -> None:
        self.emitted.append((claim, reason, text))
