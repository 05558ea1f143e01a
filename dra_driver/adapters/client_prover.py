"""Whether a CUDA client connects through a folder that holds the socket `control` alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.process import run_program
from dra_driver.errors import AdapterError
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import Proof

_TIMEOUT_S = 20.0
_BUSY = 46
"""CUDA_ERROR_DEVICE_UNAVAILABLE: of a process that tries an exclusive GPU outside of its server."""

_MPS_ERRORS = range(800, 812)
_OUT_OF_MEMORY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """Step and CUDA error of the client's failure; step "" where it had none."""

    step: str
    code: int | None
    text: str

    @property
    def refused(self) -> bool:
        """Whether the way to the server failed, as opposed to CUDA as such."""
        return self.code is None or self.code == _BUSY or self.code in _MPS_ERRORS


class CudaProver:
    """`ClientProver` with the driver's own libcuda.

    A client that does not reach its daemon runs on without MPS, in silence. Where the GPU is in
    mode EXCLUSIVE_PROCESS and a server holds it, that ends with error 46: so a second client, which
    sees an empty folder, has to fail, or the success of the first proves nothing.

    Args:
        programs: where libcuda is.
        uid: user of the GPU's server where that serves one user only; None: this process's.
        timeout_s: for each of both clients.
    """

    def __init__(
        self, programs: DriverPrograms, *, uid: int | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._programs = programs
        self._uid = uid
        self._timeout_s = timeout_s

    def prove(self, gpu: GpuUuid, folder: Path) -> Proof:
        try:
            outcome = self._try(gpu, folder)
            if not outcome.step:
                return self._with_cross_check(gpu)
        except AdapterError as error:
            return Proof(control_only=None, reason=str(error))
        if outcome.refused:
            return Proof(
                control_only=False,
                reason=f"a client that sees the socket control alone fails: {outcome.text}",
            )
        return Proof(control_only=None, reason=f"no CUDA client runs: {outcome.text}")

    def _with_cross_check(self, gpu: GpuUuid) -> Proof:
        with TemporaryDirectory(prefix="gpuslice-") as empty:
            Path(empty).chmod(0o755)
            outcome = self._try(gpu, Path(empty))
        if outcome.step:
            return Proof(control_only=True)
        return Proof(
            control_only=None,
            reason="a client that reaches no daemon gets the GPU too, so nothing is proved: the GPU"
            " is not in compute mode EXCLUSIVE_PROCESS, or no MPS server holds it",
        )

    def _try(self, gpu: GpuUuid, folder: Path) -> _Outcome:
        arguments = [sys.executable, "-m", "dra_driver.adapters.cuda_client"]
        arguments.append(str(self._programs.cuda()))
        if self._uid is not None:
            arguments.append(str(self._uid))
        done = run_program(
            arguments,
            name="a CUDA client",
            environment=self._environment(gpu, folder),
            timeout_s=self._timeout_s,
        )
        if done.status is None:
            text = f"it hung for {self._timeout_s:g} s and was killed"
            return _Outcome(step="hang", code=None, text=text)
        return _outcome(done.status, done.output, done.errors)

    def _environment(self, gpu: GpuUuid, folder: Path) -> Mapping[str, str]:
        return {
            **self._programs.environment(),
            # Without MPS it is to try this GPU, not another that is free.
            "CUDA_VISIBLE_DEVICES": gpu,
            "CUDA_MPS_PIPE_DIRECTORY": str(folder),
            "PYTHONPATH": ":".join(path for path in sys.path if path),
            "PYTHONDONTWRITEBYTECODE": "1",
        }


def _outcome(status: int, output: str, errors: str) -> _Outcome:
    try:
        answer = json.loads(output)
        step, code = str(answer["step"]), int(answer["code"])
    except (ValueError, TypeError, KeyError):
        last = errors.strip().splitlines()[-1:] or ["no text"]
        raise AdapterError(f"the CUDA client ended (status {status}): {last[0]}") from None
    text = str(answer.get("text") or f"{step} gives CUDA error {code}")
    if code == _OUT_OF_MEMORY:
        text += " (out of memory): the limits that are set leave no room for a client"
    return _Outcome(step=step, code=code, text=text)
