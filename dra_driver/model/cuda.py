"""CUDA state of a process, as the driver's checkpoint API knows it.

Source: CUDA driver API, group "Process checkpoint" (cuCheckpointProcess*), from driver 570.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dra_driver.model.device import GpuUuid

MIGRATION_CUDA: Final = 13000
"""cuDriverGetVersion from which on a process can be restored onto other GPUs: CUDA 13.0, that is
driver 580."""


class CudaState(StrEnum):
    """How far a process is taken off its GPUs.

    RUNNING: calls work. LOCKED: calls block. CHECKPOINTED: its memory is on the host, the GPU is
    let go. FAILED: nothing can be done with it any more.
    """

    RUNNING = "Running"
    LOCKED = "Locked"
    CHECKPOINTED = "Checkpointed"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRef:
    """One process for ever: the host's pid, and its start time in clock ticks after boot."""

    pid: int
    started: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMapping:
    """Where a process that used `old` goes on."""

    old: GpuUuid
    new: GpuUuid


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAbility:
    """What this node can do with CUDA state of processes; each text is empty, or why it cannot.

    Attributes:
        no_driver: the driver's checkpoint API, from driver 570.
        no_migration: restore onto other GPUs through it, from driver 580.
        no_plugin: CRIU takes CUDA state along by itself, with its plugin and cuda-checkpoint.
    """

    no_driver: str = ""
    no_migration: str = ""
    no_plugin: str = ""

    @property
    def driver(self) -> bool:
        return not self.no_driver

    @property
    def migration(self) -> bool:
        return not self.no_migration

    @property
    def plugin(self) -> bool:
        return not self.no_plugin
