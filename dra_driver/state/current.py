"""A value that one thread sets and others wait for."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Lock
from typing import Generic, TypeVar

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


class Current(Generic[T]):
    """The newest value of something, with a version that counts real changes.

    Setting an equal value changes nothing and wakes nobody.
    """

    def __init__(self, value: T) -> None:
        self._value = value
        self._version = 0
        self._closed = False
        self._changed = Condition()
        self._followers: tuple[Callable[[], None], ...] = ()

    def get(self) -> T:
        with self._changed:
            return self._value

    def snapshot(self) -> tuple[int, T]:
        """Version and value, taken together."""
        with self._changed:
            return self._version, self._value

    def set(self, value: T) -> None:
        with self._changed:
            if value == self._value:
                return
            self._value = value
            self._version += 1
            self._changed.notify_all()
            followers = self._followers
        for follower in followers:
            follower()

    def follow(self, follower: Callable[[], None]) -> None:
        """Have this called after each change, on the thread that makes it."""
        with self._changed:
            self._followers += (follower,)

    def wait_newer(self, version: int, timeout_s: float) -> tuple[int, T]:
        """Wait until the version is above `version`, the time is over, or `close` was called."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._version > version, timeout_s)
            return self._version, self._value

    @property
    def closed(self) -> bool:
        with self._changed:
            return self._closed

    def close(self) -> None:
        """Release all waiters now and from now on: the process is shutting down."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def joined(first: Current[A], second: Current[B], join: Callable[[A, B], T]) -> Current[T]:
    """Give what `join` makes of two values, changed with either of them; nobody else sets it."""
    lock = Lock()
    result = Current(join(first.get(), second.get()))

    def update() -> None:
        # One lock around reading and setting: the last to come has seen the newest of both.
        with lock:
            result.set(join(first.get(), second.get()))

    first.follow(update)
    second.follow(update)
    return result
