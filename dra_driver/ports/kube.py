"""Ports to the API server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline

Json = Mapping[str, Any]


class ClaimReader(Protocol):
    def get_claim(self, namespace: str, name: str, deadline: Deadline) -> Json:
        """Read a ResourceClaim as raw JSON; transient failures are retried until the deadline.

        Raises:
            NotFound: there is definitely no such claim.
            AdapterError: the API server refused or could not be reached in time.
        """
        ...


class Watch(Protocol):
    """Watch events ({"type", "object"}), until the server or the asked time ends it.

    Iterating raises WatchExpired where one has to list again.
    """

    def __iter__(self) -> Iterator[Json]: ...

    def close(self) -> None:
        """End the iteration from any thread, even while it waits for the next event."""
        ...


class SliceApi(Protocol):
    """This driver's ResourceSlices of this node, as raw JSON."""

    def list_slices(self) -> tuple[tuple[Json, ...], str]:
        """Slices by name, and the resource version of the list."""
        ...

    def watch_slices(self, resource_version: str, timeout_s: float) -> Watch:
        """Watch changes after a resource version for `timeout_s`; bookmarks are among the events.

        Raises:
            WatchExpired: list again.
        """
        ...

    def create_slice(self, body: Json) -> Json: ...

    def replace_slice(self, name: str, body: Json) -> Json:
        """Raises NotFound or Conflict where the slice is gone or has changed."""
        ...

    def delete_slice(self, name: str, *, uid: str, resource_version: str) -> None:
        """Delete exactly this version; a slice that is gone already is success.

        Raises:
            Conflict: it changed.
        """
        ...


class ApiProbe(Protocol):
    """Questions about the API server and the node."""

    def server_version(self) -> Json:
        """The body of /version."""
        ...

    def dry_run_slice(self, body: Json) -> Json:
        """What the server would store; raises a permanent AdapterError where it refuses."""
        ...

    def node_uid(self) -> str:
        """Raises NotFound where the Node object does not exist."""
        ...


class EventSink(Protocol):
    def emit(self, claim: ClaimRef, *, reason: str, text: str) -> None:
        """Write a Warning Event about a claim, best effort: failures are logged, never raised."""
        ...


class PodReader(Protocol):
    def get_pod(self, namespace: str, name: str, deadline: Deadline) -> Json:
        """Read a Pod as raw JSON; errors as of `ClaimReader.get_claim`."""
        ...
