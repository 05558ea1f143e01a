"""How long the parts of an operation may take.

GPU memory is copied at 4 to 8 GB/s between a GPU and its host, as NVIDIA's own figures have it; a
limit takes half the slower one. The kubelet waits 120 s for a checkpoint unless told otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from dra_driver.model.checkpoint import Operation

LEASE_S = 300.0
"""Default of a caller's lease."""
LEASE_MAX_S = 3600.0

LOCK_S = 3.0
"""A process that does not let itself be locked within this long is at work."""
LOOK_S = 5.0

_SLOWEST_BYTES_PER_S = 2e9
_VERIFY_S = 60.0
_ROLLBACK_S = 120.0
_KILL_S = 60.0
_COPY_S = 3.0

_ABSENT_S = 15.0
"""So long after its time an operation that somebody keeps has ended."""
_REPRIEVE_S = 15.0


def lease_s(asked_s: float | None) -> float:
    return LEASE_S if not asked_s else min(asked_s, LEASE_MAX_S)


def copy_s(gpu_bytes: int) -> float:
    """Limit of a move of one process between its GPUs and its host."""
    return _COPY_S + 1.5 * gpu_bytes / _SLOWEST_BYTES_PER_S


def verify_s(operation: Operation) -> float:
    return _VERIFY_S + _all_bytes(operation) / _SLOWEST_BYTES_PER_S


def rollback_s(operation: Operation) -> float:
    return _ROLLBACK_S + 2 * _all_bytes(operation) / _SLOWEST_BYTES_PER_S


def kill_s() -> float:
    return _KILL_S


def after_absence(operation: Operation, now_s: float) -> Operation:
    """Give one whose time ended while nobody kept it a little more: a first look may fail."""
    if now_s < operation.until_s + _ABSENT_S:
        return operation
    return replace(operation, until_s=now_s + _REPRIEVE_S)


def _all_bytes(operation: Operation) -> int:
    held = sum(each.gpu_bytes for each in operation.processes)
    return max(held, operation.manifest.gpu_bytes if operation.manifest is not None else 0)
