"""Files of simulated MPS daemons and servers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dra_driver.adapters.durable import DurableFolder
from dra_driver.adapters.mps_replies import check_limits
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.errors import AdapterError, MpsDenied, MpsGone, MpsHung, MpsUnverified
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import DaemonProcess, MpsLimits

_MIB_PER_GIB = 1024
_TIMEOUT_S = 5.0
_FIRST_PID = 1 << 22
_PIDS = 1 << 20


class MpsFiles:
    """<run-dir>/simulated/mps/<uuid>.<kind>.json."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = DurableFolder(run_dir / "simulated/mps", setting="--run-dir")

    def read(self, gpu: GpuUuid, kind: str) -> dict[str, Any] | None:
        """None where there is no such file, or one that says nothing: what it stood for is dead."""
        name = f"{gpu}.{kind}.json"
        with self._folder.reported(f"read {name} from"):
            content = self._folder.read(name)
        try:
            body = json.loads(content or b"null")
        except ValueError:
            return None
        return body if isinstance(body, dict) else None

    def write(self, gpu: GpuUuid, kind: str, body: Mapping[str, Any]) -> None:
        content = json.dumps({"gpu": gpu, **body}, sort_keys=True, indent=1) + "\n"
        self._folder.write(f"{gpu}.{kind}.json", content.encode())

    def remove(self, gpu: GpuUuid, kind: str) -> None:
        if self._folder.unlink(f"{gpu}.{kind}.json"):
            self._folder.sync()


def daemon_of(body: Mapping[str, Any]) -> DaemonProcess:
    return DaemonProcess(pid=number_in(body, "pid"), started=number_in(body, "started"))


def number_in(body: Mapping[str, Any], name: str) -> int:
    """A field of a file, 0 where it is no number."""
    value = body.get(name)
    return value if isinstance(value, int) else 0


def keep_limits(body: dict[str, Any], limits: MpsLimits) -> dict[str, Any]:
    """Put ceilings into what is kept of a daemon or a server, as a real one takes them."""
    check_limits(limits)
    body["computePercent"] = limits.compute_percent
    if limits.memory_mib is not None:
        body["memoryMib"] = limits.memory_mib
    elif body.get("memoryMib") is not None:
        raise MpsUnverified(
            f"the MPS daemon holds {body['memoryMib']} MiB of memory where no limit was set"
        )
    return body


def shown_limits(body: Mapping[str, Any]) -> MpsLimits:
    mib = body.get("memoryMib")
    if isinstance(mib, int) and mib >= _MIB_PER_GIB:
        mib = mib // _MIB_PER_GIB * _MIB_PER_GIB
    return MpsLimits(compute_percent=number_in(body, "computePercent"), memory_mib=mib)


def check_command(file: SimulationFile, gpu: GpuUuid) -> None:
    """What may go wrong with anything that is asked of a daemon."""
    check_known(file, gpu)
    fault = file.fault("mps.command", gpu)
    if fault is None:
        return
    file.pause(min(fault.delay_s, _TIMEOUT_S))
    if fault.error == "TIMEOUT" or fault.delay_s >= _TIMEOUT_S:
        raise MpsHung(f"the MPS control daemon of GPU {gpu} gave no answer in time")
    if fault.error == "NO_PERMISSION":
        raise MpsDenied(f"the MPS control daemon of GPU {gpu} refuses this process")
    if fault.error:
        raise AdapterError(f"the MPS control daemon of GPU {gpu} failed: {fault.error}")


def check_known(file: SimulationFile, gpu: GpuUuid) -> None:
    if all(known.uuid != gpu for known in file.last_good().gpus):
        raise AdapterError(f"GPU {gpu} is not in the --simulate file, so it has no MPS")


def gone(gpu: GpuUuid) -> MpsGone:
    return MpsGone(f"no MPS control daemon answers for GPU {gpu}")


def simulated_pid(now_ns: int) -> int:
    return _FIRST_PID + 1 + now_ns % _PIDS
