"""Objects of the simulated API server: one resource version for all of them, and its history."""

from __future__ import annotations

import secrets
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Condition
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Resource, namespace (empty where it has none), name."""

_GENERATE_NAME_MAX = 58
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class StatusError(Exception):
    """An answer that is not a success.

    Args:
        code: HTTP status.
        reason: Kubernetes' machine-readable reason.
        message: for people.
        details: as in a Status object.
    """

    def __init__(
        self, code: int, reason: str, message: str, *, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = dict(details or {})


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one object; the object is as it was after it, or before its deletion."""

    version: int
    type: str
    key: Key
    object: Object


class ObjectStore:
    """Thread-safe; objects go in and come out as copies."""

    def __init__(self, *, history: int = 1000) -> None:
        self._objects: dict[Key, Object] = {}
        self._version = 0
        self._changes: deque[Change] = deque(maxlen=history)
        self._compacted = 0
        self._changed = Condition()

    def get(self, key: Key) -> Object:
        with self._changed:
            return deepcopy(self._existing(key))

    def list(self, resource: str, namespace: str = "") -> tuple[list[Object], str]:
        """Objects by namespace and name, and the resource version of the list."""
        with self._changed:
            keys = sorted(
                key for key in self._objects if key[0] == resource and namespace in {"", key[1]}
            )
            return [deepcopy(self._objects[key]) for key in keys], str(self._version)

    def create(self, resource: str, namespace: str, body: Object, *, dry_run: bool) -> Object:
        with self._changed:
            stored = deepcopy(body)
            metadata = stored.setdefault("metadata", {})
            if not metadata.get("name"):
                prefix = metadata.get("generateName", "")[:_GENERATE_NAME_MAX]
                metadata["name"] = prefix + _suffix()
            key = (resource, namespace, metadata["name"])
            if key in self._objects:
                raise _status(409, "AlreadyExists", key, "already exists")
            metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now(), "generation": 1}
            if namespace:
                metadata["namespace"] = namespace
            if not dry_run:
                self._put(key, stored, "ADDED")
            return deepcopy(stored)

    def replace(
        self, key: Key, body: Object, *, merge: Callable[[Object, Object], Object]
    ) -> Object:
        """Store what `merge` makes of the stored object and the body, where something changes.

        Raises:
            StatusError: 404, or 409 where the body names another resource version or UID.
        """
        with self._changed:
            stored = self._existing(key)
            _check_same(key, stored, body.get("metadata") or {})
            merged = merge(deepcopy(stored), deepcopy(body))
            # What the server owns stays whatever the body says.
            for field in ("uid", "creationTimestamp", "resourceVersion", "name", "namespace"):
                if field in stored["metadata"]:
                    merged["metadata"][field] = stored["metadata"][field]
            if merged != stored:
                self._put(key, merged, "MODIFIED")
            return deepcopy(self._objects[key])

    def delete(self, key: Key, preconditions: Mapping[str, Any] | None = None) -> Object:
        with self._changed:
            stored = self._existing(key)
            _check_same(key, stored, preconditions or {})
            del self._objects[key]
            self._record(key, stored, "DELETED")
            return deepcopy(stored)

    def changes(
        self, resource: str, after: int, timeout_s: float
    ) -> tuple[tuple[Change, ...], int]:
        """Changes of a resource above a version, and the version they lead to; waits for one.

        Raises:
            StatusError: 410 where the history does not reach back so far.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._version > after, timeout_s)
            if after < self._compacted:
                text = f"too old resource version: {after} ({self._compacted})"
                raise StatusError(410, "Expired", text)
            found = tuple(
                Change(change.version, change.type, change.key, deepcopy(change.object))
                for change in self._changes
                if change.version > after and change.key[0] == resource
            )
            return found, self._version

    def compact(self) -> None:
        """Forget the history, so that all watches have to list again."""
        with self._changed:
            self._version += 1
            self._compacted = self._version
            self._changes.clear()
            self._changed.notify_all()

    def wake(self) -> None:
        """Let waiters of `changes` look up."""
        with self._changed:
            self._changed.notify_all()

    def _existing(self, key: Key) -> Object:
        found = self._objects.get(key)
        if found is None:
            raise _status(404, "NotFound", key, "not found")
        return found

    def _put(self, key: Key, stored: Object, kind: str) -> None:
        self._objects[key] = stored
        self._record(key, stored, kind)

    def _record(self, key: Key, stored: Object, kind: str) -> None:
        self._version += 1
        stored["metadata"]["resourceVersion"] = str(self._version)
        if len(self._changes) == self._changes.maxlen:
            self._compacted = self._changes[0].version
        self._changes.append(Change(self._version, kind, key, deepcopy(stored)))
        self._changed.notify_all()


def _check_same(key: Key, stored: Object, asked: Mapping[str, Any]) -> None:
    metadata = stored["metadata"]
    for field in ("uid", "resourceVersion"):
        if asked.get(field) and asked[field] != metadata[field]:
            text = f"the {field} is {metadata[field]}, not {asked[field]}: the object was modified"
            raise _status(409, "Conflict", key, text)


def _status(code: int, reason: str, key: Key, text: str) -> StatusError:
    resource, _, name = key
    details = {"name": name, "kind": resource}
    return StatusError(code, reason, f'{resource} "{name}" {text}', details=details)


def _suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
