"""A tiny CUDA client: reads one JSON request a line, answers with one JSON object a line.

Stands alone, so that a copy of it runs as any user in any namespace. Codes are CUresults.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

MIB = 1 << 20
SPIN_MAX_S = 30.0
_SM_COUNT = 16
_CHUNK = 64 * MIB
_PTX = b"""
.version 6.4
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 nanoseconds, .param .u64 out)
{
    .reg .u64 %r<6>;
    .reg .pred %again;
    ld.param.u64 %r1, [nanoseconds];
    ld.param.u64 %r5, [out];
    cvta.to.global.u64 %r5, %r5;
    mov.u64 %r2, %globaltimer;
    add.u64 %r3, %r2, %r1;
LOOP:
    mov.u64 %r4, %globaltimer;
    setp.lt.u64 %again, %r4, %r3;
    @%again bra LOOP;
    st.global.u64 [%r5], %r4;
    ret;
}
"""


class LockArgs(ctypes.Structure):
    """CUcheckpointLockArgs of cuda.h."""

    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class Client:
    """Requests are methods; what they return is the answer."""

    def __init__(self) -> None:
        self._cuda: Any = None
        self._memory: list[tuple[ctypes.c_uint64, int]] = []
        self._kernel = ctypes.c_void_p()
        self._out = ctypes.c_uint64()

    def env(self, **changes: str | None) -> dict[str, Any]:
        """Set or (None) unset variables of this process, as a tenant's program can."""
        for name, value in changes.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        return {}

    def init(self) -> dict[str, Any]:
        """Start CUDA and open the first device's context; stops at the first call that fails."""
        begun_s = time.monotonic()
        codes = {"cuInit": self._call("cuInit", 0)}
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if not any(codes.values()):
            codes["cuDeviceGet"] = self._call("cuDeviceGet", ctypes.byref(device), 0)
        if not any(codes.values()):
            codes["context"] = self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        if not any(codes.values()):
            codes["current"] = self._call("cuCtxSetCurrent", context)
        sm = ctypes.c_int(-1)
        if not any(codes.values()):
            self._call("cuDeviceGetAttribute", ctypes.byref(sm), _SM_COUNT, device)
        return {
            "code": next((code for code in codes.values() if code), 0),
            "codes": codes,
            "sm": sm.value,
            "pid": os.getpid(),
            "seconds": round(time.monotonic() - begun_s, 3),
        }

    def info(self) -> dict[str, Any]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        code = self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return {"code": code, "free_mib": free.value // MIB, "total_mib": total.value // MIB}

    def alloc(self, mib: int) -> dict[str, Any]:
        """Plain device memory, kept until the end."""
        address = ctypes.c_uint64()
        size = mib * MIB
        code = self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        if code == 0:
            self._memory.append((address, size))
        return {"code": code}

    def free(self) -> dict[str, Any]:
        codes = [self._call("cuMemFree_v2", address) for address, _ in self._memory]
        self._memory.clear()
        return {"code": next((code for code in codes if code), 0)}

    def fill(self) -> dict[str, Any]:
        """Write a pattern over all memory that is held."""
        codes = [
            self._call("cuMemsetD8_v2", address, ctypes.c_ubyte(90 + place), ctypes.c_size_t(size))
            for place, (address, size) in enumerate(self._memory)
        ]
        return {"code": next((code for code in codes if code), 0)}

    def digest(self) -> dict[str, Any]:
        """Read all memory that is held."""
        digest, code = hashlib.sha256(), 0
        for address, size in self._memory:
            for start in range(0, size, _CHUNK):
                part = ctypes.create_string_buffer(min(_CHUNK, size - start))
                at = ctypes.c_uint64(address.value + start)
                code = code or self._call("cuMemcpyDtoH_v2", part, at, ctypes.c_size_t(len(part)))
                digest.update(part)
        return {"code": code, "sha256": digest.hexdigest()}

    def spin(self, seconds: float, *, wait: bool = True) -> dict[str, Any]:
        """Run a kernel that lasts this long, at most SPIN_MAX_S."""
        code = self._load()
        if code == 0:
            code = self._launch(min(seconds, SPIN_MAX_S))
        if code == 0 and wait:
            code = self._call("cuCtxSynchronize")
        return {"code": code}

    def sync(self) -> dict[str, Any]:
        return {"code": self._call("cuCtxSynchronize")}

    def rate(self, seconds: float) -> dict[str, Any]:
        """How many kernels of a millisecond end in a time."""
        code, count, end_s = self._load(), 0, time.monotonic() + seconds
        while code == 0 and time.monotonic() < end_s:
            code = self._launch(0.001) or self._call("cuCtxSynchronize")
            count += 1
        return {"code": code, "per_second": round(count / seconds, 1)}

    def checkpoint(self, action: str, pid: int, timeout_ms: int = 3000) -> dict[str, Any]:
        """One call of the driver's checkpoint interface about another process."""
        begun_s, state = time.monotonic(), ctypes.c_int(-1)
        third: Any = None
        if action in {"GetState", "GetRestoreThreadId"}:
            third = ctypes.byref(state)
        elif action == "Lock":
            third = ctypes.byref(LockArgs(timeout_ms=timeout_ms))
        code = self._call(f"cuCheckpointProcess{action}", ctypes.c_int(pid), third)
        seconds = round(time.monotonic() - begun_s, 4)
        return {"code": code, "value": state.value, "seconds": seconds}

    def start(self) -> dict[str, Any]:
        """Start CUDA without a context: enough for calls about other processes."""
        return {"code": self._call("cuInit", 0)}

    def _launch(self, seconds: float) -> int:
        nanoseconds = ctypes.c_uint64(int(seconds * 1e9))
        values = (ctypes.c_void_p * 2)(ctypes.addressof(nanoseconds), ctypes.addressof(self._out))
        grid = (ctypes.c_uint(1),) * 6
        return self._call(
            "cuLaunchKernel", self._kernel, *grid, ctypes.c_uint(0), None, values, None
        )

    def _load(self) -> int:
        """Compile the kernel once."""
        if self._kernel:
            return 0
        module = ctypes.c_void_p()
        return (
            self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_PTX))
            or self._call("cuModuleGetFunction", ctypes.byref(self._kernel), module, b"spin")
            or self._call("cuMemAlloc_v2", ctypes.byref(self._out), ctypes.c_size_t(8))
        )

    def _call(self, name: str, *arguments: Any) -> int:
        """The CUresult; -1 where the library lacks the function."""
        if self._cuda is None:
            self._cuda = ctypes.CDLL(os.environ.get("GPU_TEST_LIBCUDA", "libcuda.so.1"))
        function = getattr(self._cuda, name, None)
        return -1 if function is None else int(function(*arguments))


def main() -> None:
    client = Client()
    for line in sys.stdin:
        request = json.loads(line)
        number = request.pop("number")
        method: Callable[..., dict[str, Any]] = getattr(client, request.pop("do"))
        try:
            answer = method(**request)
        except OSError as error:
            answer = {"code": -2, "error": str(error)}
        print(json.dumps({**answer, "number": number}), flush=True)


if __name__ == "__main__":
    main()
