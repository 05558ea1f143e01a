"""Runs the helper that calls libcuda, and tells how that went."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver.adapters import cuda_helper
from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.process import Finished, run_program
from dra_driver.adapters.process_stat import start_time
from dra_driver.errors import AdapterError, CudaFailed, OutOfTime

_HELPER = Path(cuda_helper.__file__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the last function that was called returned; 0 is success, any other number is failure.

    Attributes:
        step: name of the function.
        name: CUDA's name of a failure, such as CUDA_ERROR_ILLEGAL_STATE.
        value: what it gave.
    """

    step: str
    code: int
    name: str = ""
    value: int | None = None


def call_driver(
    programs: DriverPrograms,
    action: str,
    values: tuple[str, ...] = (),
    *,
    timeout_s: float,
    proc: Path = Path("/proc"),
) -> Answer:
    """Have a helper do `action`, one of `cuda_helper`; it is killed when its time is over.

    Raises:
        OutOfTime: it was killed, or there was no time left to start it.
        CudaFailed: the library brought the helper down.
        AdapterError: there is no such library, or it lacks the API; permanent for the latter.
    """
    if timeout_s <= 0:
        raise OutOfTime(f"no time is left to {action}, so nothing was done: try again")
    library = programs.cuda()
    done = run_program(
        [sys.executable, "-IS", str(_HELPER), action, str(library), *values],
        name="the CUDA helper",
        environment={
            **programs.environment(),
            # It is no client of whatever MPS daemon has the default folder.
            "CUDA_MPS_PIPE_DIRECTORY": "/nonexistent",
        },
        timeout_s=timeout_s,
    )
    return _answer(done, library, timeout_s=timeout_s, proc=proc)


def _answer(done: Finished, library: Path, *, timeout_s: float, proc: Path) -> Answer:
    said = _lines(done.output)
    last: Mapping[str, Any] = said[-1] if said else {}
    step = str(last.get("step", "its start"))
    if "code" in last:
        name = str(last.get("name", ""))
        return Answer(step=step, code=int(last["code"]), name=name, value=last.get("value"))
    if "missing" in last:
        raise AdapterError(
            f"{library} has no {last['missing']}: CUDA state of processes can be checkpointed from "
            "NVIDIA driver 570 on",
            permanent=True,
        )
    if "text" in last:
        raise AdapterError(f"{library} cannot be loaded: {last['text']}; check --driver-root")
    if done.status is None:
        raise OutOfTime(_killed(step, int(said[0]["pid"]) if said else None, timeout_s, proc))
    if done.status < 0:
        raise CudaFailed(
            f"the helper was ended by {_signal(-done.status)} in {step}, so what that did is not "
            "known: look at the state of the process"
        )
    complaint = done.errors.strip().splitlines()[-1:] or ["no text"]
    raise AdapterError(f"the CUDA helper ended (status {done.status}) in {step}: {complaint[0]}")


def _killed(step: str, helper: int | None, timeout_s: float, proc: Path) -> str:
    text = (
        f"{step} did not end within {timeout_s:.1f} s and its helper was killed, so what it did is "
        "not known: look at the state of the process"
    )
    if helper is not None and start_time(proc, helper) is not None:
        text += (
            f"; helper process {helper} is still there, held by the kernel in a call to the GPU "
            "driver: see the node's kernel log"
        )
    return text


def _lines(output: str) -> list[dict[str, Any]]:
    """What it said; a last line may be cut off with it."""
    return [json.loads(line) for line in output.splitlines(keepends=True) if line.endswith("\n")]


def _signal(number: int) -> str:
    known = {each.value: each.name for each in signal.Signals}
    return known.get(number, f"signal {number}")
