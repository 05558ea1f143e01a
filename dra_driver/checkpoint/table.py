"""The operations of the hook: in memory, and in files behind it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Condition, Lock

from dra_driver.model.checkpoint import Kind, Operation
from dra_driver.plan.operation_lasting import lasts, lasts_at_once
from dra_driver.ports import OperationStore

KEPT = 1000
"""Operations that have ended are kept up to this number, and for so long."""
KEPT_S = 7 * 24 * 3600.0


class OperationTable:
    """Safe for many threads; `load` comes first."""

    def __init__(self, store: OperationStore) -> None:
        self._store = store
        self._lock = Lock()
        self._operations: dict[str, Operation] | None = None
        self._under_way: dict[str, Operation] = {}
        self._lasting: set[str] = set()

    def load(self) -> None:
        """Raises AdapterError."""
        loaded = {each.id: each for each in self._store.load()}
        with self._lock:
            self._operations = loaded
            self._under_way = _not_final(loaded)

    def all(self) -> tuple[Operation, ...]:
        """By start time, then id."""
        return _in_order(self.by_id().values())

    def by_id(self) -> Mapping[str, Operation]:
        """All by id; before they are loaded, as they are stored.

        Raises:
            AdapterError: they cannot be read.
        """
        with self._lock:
            if self._operations is not None:
                return dict(self._operations)
        # Another plugin has them still; it tells through its files.
        return {each.id: each for each in self._store.load()}

    def get(self, operation_id: str) -> Operation | None:
        """As `by_id`."""
        with self._lock:
            if self._operations is not None:
                return self._operations.get(operation_id)
        return self.by_id().get(operation_id)

    def under_way(self) -> tuple[Operation, ...]:
        """Those of `all` that are; their cost does not grow with what has ended."""
        with self._lock:
            found = self._under_way if self._operations is not None else None
            if found is not None:
                return _in_order(found.values())
        return _in_order(_not_final(self.by_id()).values())

    def open_on(self, container_id: str, kind: Kind) -> Operation | None:
        """The operation of this kind that is under way on a container."""
        return next((each for each in self._open(container_id) if each.kind is kind), None)

    def any_open_on(self, container_id: str) -> Operation | None:
        return next(self._open(container_id), None)

    def save(self, operation: Operation) -> None:
        """Stored on return, whatever becomes of this process; the caller holds its lock.

        One that has to be there after a power cut is so on return if it has ended, else from
        `settle` on.

        Raises:
            AdapterError: it cannot be stored; then it is as before.
        """
        self._save(operation, lasting=lasts_at_once(operation))

    def settle(self, operation: Operation) -> None:
        """Let one that has to be there after a power cut be so; as `save`."""
        if lasts(operation) and operation.id not in self._lasting:
            self._save(operation, lasting=True)

    def prune(self, now_wall_s: float, *, spared: Collection[str] = ()) -> None:
        """Forget what ended long ago but for `spared`, by id. Raises AdapterError."""
        ended = [each for each in self.all() if each.state.final]
        old = {each.id for each in ended if now_wall_s - each.changed_wall_s > KEPT_S}
        beyond = {each.id for each in ended[: max(0, len(ended) - KEPT)]}
        for each in sorted((old | beyond).difference(spared)):
            self._store.forget(each)
            with self._lock:
                self._lasting.discard(each)
                self._under_way.pop(each, None)
                if self._operations is not None:
                    self._operations.pop(each, None)

    def _save(self, operation: Operation, *, lasting: bool) -> None:
        self._store.save(operation, lasting=lasting)
        with self._lock:
            if lasting:
                self._lasting.add(operation.id)
            known = self._operations if self._operations is not None else {}
            known[operation.id] = operation
            self._operations = known
            if operation.state.final:
                self._under_way.pop(operation.id, None)
            else:
                self._under_way[operation.id] = operation

    def _open(self, container_id: str) -> Iterator[Operation]:
        if not container_id:
            return
        for each in self.under_way():
            if each.target.container_id == container_id:
                yield each


def _not_final(operations: Mapping[str, Operation]) -> dict[str, Operation]:
    return {key: each for key, each in operations.items() if not each.state.final}


def _in_order(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    return tuple(sorted(operations, key=lambda each: (each.started_wall_s, each.id)))


class KeyedLocks:
    """One lock for each key that somebody wants."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._held: set[str] = set()

    @contextmanager
    def held(self, key: str, timeout_s: float) -> Iterator[bool]:
        """Give whether the lock was got in time."""
        with self._changed:
            got = self._changed.wait_for(lambda: key not in self._held, timeout_s)
            if got:
                self._held.add(key)
        try:
            yield got
        finally:
            if got:
                with self._changed:
                    self._held.discard(key)
                    self._changed.notify_all()
