"""One call of the driver's checkpoint API, made in a process that may be killed.

Run as `python cuda_helper.py ACTION LIBRARY [PID [VALUE …]]`; it needs nothing but Python's own
library, so that it starts fast. The library may hang, and may do anything to the process that loads
it: `{"pid": …}` is printed first and `{"step": …}` before each call into it, so that the last line
of one that was killed tells where. Its own last line has `code`, what the step returned, with the
`name` of that and a `value` where there is one; or, of a library that does not serve, the `missing`
function or the `text` of its loader.

Source of functions and structures: cuda.h, CUDA 13.0, "Process checkpoint".
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence

STATE, LOCK, CHECKPOINT, RESTORE, UNLOCK = "state", "lock", "checkpoint", "restore", "unlock"
VERSION = "version"
"""Asks nothing of a GPU: the newest CUDA that the driver runs, 12080 for 12.8."""

LOAD, INIT = "load", "cuInit"
GET_VERSION = "cuDriverGetVersion"
GET_THREAD = "cuCheckpointProcessGetRestoreThreadId"
GET_STATE = "cuCheckpointProcessGetState"
TRANSITIONS = {
    LOCK: "cuCheckpointProcessLock",
    CHECKPOINT: "cuCheckpointProcessCheckpoint",
    RESTORE: "cuCheckpointProcessRestore",
    UNLOCK: "cuCheckpointProcessUnlock",
}
_NEEDED = (GET_THREAD, GET_STATE, *TRANSITIONS.values())

_PR_SET_PDEATHSIG = 1

_Step = tuple[str, int, int | None]
"""Function, what it returned, and the value that it gave."""


class _LockArgs(ctypes.Structure):
    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class _NoArgs(ctypes.Structure):
    """Of checkpoint and unlock: nothing but room."""

    _fields_ = (("reserved", ctypes.c_uint64 * 8),)


class _GpuPair(ctypes.Structure):
    _fields_ = (("old_uuid", ctypes.c_ubyte * 16), ("new_uuid", ctypes.c_ubyte * 16))


class _RestoreArgs(ctypes.Structure):
    """As from CUDA 13.0; before, all of it was reserved and had to be zero."""

    _fields_ = (
        ("gpu_pairs", ctypes.POINTER(_GpuPair)),
        ("gpu_pairs_count", ctypes.c_uint),
        ("reserved", ctypes.c_ubyte * (52 - ctypes.sizeof(ctypes.c_void_p))),
        ("reserved1", ctypes.c_uint64),
    )


def main(action: str, library: str, values: Sequence[str]) -> None:
    # What outlives the plugin would move a process after the next plugin has brought it back.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _say({"pid": os.getpid()})
    try:
        _say({"step": LOAD})
        cuda = ctypes.CDLL(library)
    except OSError as error:
        _say({"step": LOAD, "text": str(error)})
    else:
        missing = [name for name in _NEEDED if not hasattr(cuda, name)]
        _say({"step": LOAD, "missing": missing[0]} if missing else _tried(cuda, action, values))
    # Its way out is not of interest, and may hang.
    os._exit(0)


def _tried(cuda: ctypes.CDLL, action: str, values: Sequence[str]) -> dict[str, object]:
    """How the last of the calls went: the first that failed, or all did not."""
    answer: dict[str, object] = {}
    for name, code, value in _calls(cuda, action, values):
        answer = {"step": name, "code": code, "value": value}
        if code:
            return {**answer, "name": _name(cuda, code)}
    return answer


def _calls(cuda: ctypes.CDLL, action: str, values: Sequence[str]) -> Iterator[_Step]:
    found = ctypes.c_int()
    if action == VERSION:
        yield _call(cuda, GET_VERSION, ctypes.byref(found), gives=found)
        return
    # Without this the driver may not be loaded, and refuses to restore unless in persistence mode.
    yield _call(cuda, INIT, 0)
    pid = int(values[0])
    if action == STATE:
        # Only this tells a process that uses CUDA from others; the next one calls those running.
        yield _call(cuda, GET_THREAD, pid, ctypes.byref(found), gives=found)
        yield _call(cuda, GET_STATE, pid, ctypes.byref(found), gives=found)
    else:
        yield _call(cuda, TRANSITIONS[action], pid, ctypes.byref(_arguments(action, values[1:])))


def _call(
    cuda: ctypes.CDLL, name: str, *arguments: object, gives: ctypes.c_int | None = None
) -> _Step:
    _say({"step": name})
    code = int(getattr(cuda, name)(*arguments))
    return name, code, None if gives is None else gives.value


def _arguments(action: str, values: Sequence[str]) -> ctypes.Structure:
    """Of a transition: of a lock its milliseconds, of a restore its pairs of old=new in hex."""
    if action == LOCK:
        return _LockArgs(timeout_ms=int(values[0]))
    if action == RESTORE and values:
        pairs = (_GpuPair * len(values))(*map(_pair, values))
        return _RestoreArgs(gpu_pairs=pairs, gpu_pairs_count=len(values))
    return _RestoreArgs() if action == RESTORE else _NoArgs()


def _pair(text: str) -> _GpuPair:
    return _GpuPair.from_buffer_copy(bytes.fromhex(text.replace("=", "")))


def _name(cuda: ctypes.CDLL, code: int) -> str:
    name = ctypes.c_char_p()
    if cuda.cuGetErrorName(code, ctypes.byref(name)) or name.value is None:
        return "an unknown result"
    return name.value.decode(errors="replace")


def _say(line: dict[str, object]) -> None:
    # At once: what is kept in memory is lost with a process that dies in a call.
    os.write(1, f"{json.dumps(line)}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
