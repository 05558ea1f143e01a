"""GPUs of a node, and who uses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from dra_driver.errors import AdapterError
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.doctor import Finding, ok, problem, warning
from dra_driver.model.mps import GpuSharing
from dra_driver.plan.doctor import (
    judge_driver,
    judge_foreign,
    judge_gpus,
    judge_mode,
    judge_sharing,
)
from dra_driver.ports import GpuControl, GpuLibrary, MpsDaemons, SharingStates


class Persistence(Protocol):
    def persistent(self, gpu: GpuUuid) -> bool | None:
        """Whether the driver keeps the GPU initialised while nobody uses it.

        None: it has no such mode. Raises AdapterError where the driver does not say.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPorts:
    """What is looked at; None: nothing of that kind runs in this configuration."""

    library: GpuLibrary
    persistence: Persistence | None = None
    control: GpuControl | None = None
    daemons: MpsDaemons | None = None
    states: SharingStates | None = None


class GpuChecks:
    """Findings about GPUs; `gpus` comes first, the others speak of what it found."""

    def __init__(self, ports: GpuPorts) -> None:
        self._ports = ports
        self._inventory = Inventory()
        self._states: dict[GpuUuid, GpuSharing] | None = None

    def gpus(self) -> Iterator[Finding]:
        try:
            self._inventory = self._ports.library.inventory()
        except AdapterError as error:
            yield problem("driver", str(error))
            return
        yield from judge_driver(self._inventory)
        yield from judge_gpus(self._inventory)

    def persistence(self) -> Iterator[Finding]:
        subject = "persistence mode"
        if self._inventory.simulated:
            yield ok(subject, "simulated")
            return
        if self._ports.persistence is None:
            return
        for gpu in self._inventory.gpus:
            on = self._ports.persistence.persistent(gpu.uuid)
            if on is False:
                text = f"off for {gpu.uuid}: its first use after a pause takes seconds"
                yield warning(subject, text, "systemctl enable --now nvidia-persistenced")
            else:
                yield ok(subject, f"{'on for' if on else 'none on'} {gpu.uuid}")

    def sharing(self) -> Iterator[Finding]:
        if self._ports.states is None:
            yield ok("mpsd", "not needed: sharing is simulated inside the plugin, or not enforced")
            return
        try:
            with closing(self._ports.states.watch()) as watch:
                found = next(iter(watch), ())
        except AdapterError as error:
            yield problem("mpsd", f"GPUs are offered whole: {error}")
            return
        self._states = {each.gpu: each for each in found}
        yield ok("mpsd", f"answers and knows {len(found)} GPUs")
        yield from map(judge_sharing, found)

    def modes(self) -> Iterator[Finding]:
        control = self._ports.control
        if control is None:
            return
        for gpu in self._inventory.gpus:
            try:
                mode = control.compute_mode(gpu.uuid)
                foreign = self._foreign(gpu.uuid)
            except AdapterError as error:
                yield problem(f"compute mode {gpu.uuid}", str(error))
                continue
            shares: tuple[str, ...] | None = None
            if self._states is not None:
                state = self._states.get(gpu.uuid)
                shares = state.shares if state is not None else ()
            yield judge_mode(gpu.uuid, mode, shares=shares, foreign=foreign)

    def foreign(self) -> Iterator[Finding]:
        for gpu in self._inventory.gpus if self._ports.daemons is not None else ():
            yield judge_foreign(gpu.uuid, self._foreign(gpu.uuid))

    def _foreign(self, gpu: GpuUuid) -> tuple[int, ...]:
        return self._ports.daemons.foreign(gpu) if self._ports.daemons is not None else ()
