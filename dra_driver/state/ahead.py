"""What of a record's steps is under way before their turn.

Shares are enforced by another process, and a CDI spec is written out on a disk: neither needs this
one meanwhile, so they take their time side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from dra_driver.errors import AdapterError, ClaimError
from dra_driver.model.device import GpuUuid
from dra_driver.ports import StagedSpec

Wait = Callable[[], None]


class Ahead:
    """Always to be closed: nothing else may be applied to a GPU while this is under way."""

    def __init__(self) -> None:
        self._shares: dict[GpuUuid, Wait | None] = {}
        self._specs: dict[str, StagedSpec] = {}

    def begin_shares(self, gpu: GpuUuid, begin: Callable[[], Wait]) -> None:
        """Begin to enforce the shares of a GPU, once."""
        if gpu not in self._shares:
            self._shares[gpu] = begin()

    def stage_spec(self, name: str, stage: Callable[[], StagedSpec]) -> None:
        self._specs[name] = stage()

    def end_shares(self, gpu: GpuUuid) -> None:
        """Wait until the shares of a GPU are enforced; raises what keeps them from it."""
        wait, self._shares[gpu] = self._shares[gpu], None
        if wait is not None:
            wait()

    def place_spec(self, name: str) -> None:
        self._specs[name].place()

    def close(self) -> None:
        try:
            for gpu in self._shares:
                # The failure that ended the work is the one to tell.
                with suppress(AdapterError, ClaimError):
                    self.end_shares(gpu)
        finally:
            for spec in self._specs.values():
                spec.close()
