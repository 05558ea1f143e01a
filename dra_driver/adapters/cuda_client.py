"""A smallest CUDA client: opens a context, allocates a little, and says how far it came.

Run as `python -m dra_driver.adapters.cuda_client LIBRARY [UID]`, in a process of its own as the
library may hang, and may do anything to the process that loads it. Prints one JSON object:
`{"step": …, "code": …}` with the first step that failed and CUDA's error, or step "" and code 0.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterator

_BYTES = 16 * 1024 * 1024

_Step = tuple[str, Callable[[], int]]


def main(library: str, uid: str | None) -> None:
    if uid is not None:
        os.setgroups([])
        os.setgid(int(uid))
        os.setuid(int(uid))
    try:
        cuda = ctypes.CDLL(library)
        step, code = next(((name, code) for name, run in _steps(cuda) if (code := run())), ("", 0))
        answer = {"step": step, "code": code}
    except (OSError, AttributeError) as error:
        # The library, or a function of it, is not there.
        answer = {"step": "load", "code": -1, "text": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    # Its way out is not of interest, and may hang with a wedged server.
    os._exit(0)


def _steps(cuda: ctypes.CDLL) -> Iterator[_Step]:
    device = ctypes.c_int()
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    yield "cuInit", lambda: int(cuda.cuInit(0))
    yield "cuDeviceGet", lambda: int(cuda.cuDeviceGet(ctypes.byref(device), 0))
    yield (
        "cuDevicePrimaryCtxRetain",
        lambda: int(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)),
    )
    yield "cuCtxSetCurrent", lambda: int(cuda.cuCtxSetCurrent(context))
    yield (
        "cuMemAlloc",
        lambda: int(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(_BYTES))),
    )
    yield "cuMemFree", lambda: int(cuda.cuMemFree_v2(memory))
    yield "cuDevicePrimaryCtxRelease", lambda: int(cuda.cuDevicePrimaryCtxRelease_v2(device))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if sys.argv[2:] else None)
