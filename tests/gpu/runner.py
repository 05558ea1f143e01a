"""Asks all questions, each in a process of its own, and writes one JSON file.

Whatever happens to a step, the rest goes on: it is killed at its budget, and what it started is
ended. Nothing of the GPU is changed, unless --exclusive allows it to be in exclusive mode for the
step that needs it; the mode of before is put back whatever becomes of that step.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, Protocol

from tests.gpu import nvml
from tests.gpu.fake import fake_site
from tests.gpu.site import Site
from tests.gpu.steps import STEPS
from tests.gpu.steps.values import Step

TOTAL_S = 480.0
_ROOT = Path(__file__).resolve().parents[2]
_CONTROL_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/nvidia/bin")
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Modes(Protocol):
    """The compute mode of a GPU; what `tests.gpu.nvml` offers."""

    def compute_mode(self, gpu: str) -> int: ...

    def set_compute_mode(self, gpu: str, mode: int) -> None: ...


def main(arguments: Sequence[str]) -> int:
    given = _parse(arguments)
    steps = [step for step in STEPS if not given.only or step.name in given.only]
    with _work() as work:
        try:
            site = _fake_site(work, given) if given.dry_run else _real_site(work, given)
        except RuntimeError as error:
            print(f"tests/gpu/run: {error}; --dry-run needs no GPU", file=sys.stderr)
            return 2
        if given.dry_run:
            for step in steps:
                print(f"{step.name} ({step.budget_s:g} s): {step.asks}")
        if site is None:
            print("no compiler here, so the steps are not tried on fakes")
            return 0
        report = ask_all(steps, site, total_s=given.total_s, modes=nvml)
    text = json.dumps(report, indent=1, sort_keys=True)
    if given.out:
        Path(given.out).write_text(text + "\n", encoding="utf-8")
    print(text if not given.dry_run else summary(report))
    return 0 if all(each["status"] in {"ok", "skipped"} for each in report["steps"]) else 1


def ask_all(steps: Iterable[Step], site: Site, *, total_s: float, modes: Modes) -> dict[str, Any]:
    """Ask each step, until the time is over; the compute mode is as before afterwards."""
    end_s = time.monotonic() + total_s
    answers: list[dict[str, Any]] = []
    for step in steps:
        left_s = end_s - time.monotonic()
        reason = step.skipped(site) or ("no time is left" if left_s < 1 else "")
        if reason:
            answers.append({"step": step.name, "status": "skipped", "reason": reason})
        else:
            with _mode(step, site, modes) as kept:
                answers.append(ask(step, site, budget_s=min(step.budget_s, left_s)))
            answers[-1].update(kept)
        print(f"{step.name}: {answers[-1]['status']}", file=sys.stderr, flush=True)
    return {"driver": site.driver, "gpu": site.gpu, "steps": answers}


def ask(step: Step, site: Site, *, budget_s: float) -> dict[str, Any]:
    """Run one step in a process; "ok", "failed" with its error, or "timed out"."""
    result, errors = Path(site.work) / f"{step.name}.json", Path(site.work) / f"{step.name}.err"
    begun_s, status = time.monotonic(), "ok"
    with errors.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.step", step.name, site.to_json(), str(result)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=_ROOT,
            env={**os.environ, "GPU_TEST_WORK": site.work},
        )
        try:
            status = "ok" if process.wait(budget_s) == 0 else "failed"
        except subprocess.TimeoutExpired:
            status = "timed out"
        finally:
            process.kill()
            left = end_strays(site.work)
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    answer: dict[str, Any] = {
        "step": step.name,
        "asks": step.asks,
        "status": status if status != "ok" or result.exists() else "failed",
        "seconds": round(time.monotonic() - begun_s, 2),
    }
    if result.exists():
        answer["result"] = json.loads(result.read_text(encoding="utf-8"))
    else:
        answer["error"] = errors.read_text(encoding="utf-8", errors="replace")[-2000:]
    return answer | ({"ended_by_force": left} if left else {})


def end_strays(work: str) -> list[int]:
    """End, by pid, what steps of this run have left behind; gives the pids."""
    mark = f"GPU_TEST_WORK={work}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        pid = int(entry.name) if entry.name.isdigit() else os.getpid()
        if pid == os.getpid():
            continue
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)
                found.append(pid)
    return sorted(found)


def summary(report: dict[str, Any]) -> str:
    return "\n".join(
        f"{each['step']}: {each['status']} {each.get('reason') or each.get('error', '')}".rstrip()
        for each in report["steps"]
    )


@contextmanager
def _mode(step: Step, site: Site, modes: Modes) -> Iterator[dict[str, int]]:
    """The mode that the step needs; gives what it was before and is afterwards."""
    kept: dict[str, int] = {}
    if "exclusive" not in step.needs:
        yield kept
        return
    before = kept["mode_before"] = modes.compute_mode(site.gpu)
    try:
        modes.set_compute_mode(site.gpu, nvml.EXCLUSIVE_PROCESS)
        yield kept
    finally:
        modes.set_compute_mode(site.gpu, before)
        kept["mode_after"] = modes.compute_mode(site.gpu)


@contextmanager
def _work() -> Iterator[str]:
    """A folder that every user can enter; a signal leaves the block as an error does."""

    def leave(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before: list[Any] = [signal.signal(number, leave) for number in _SIGNALS]
    folder = tempfile.mkdtemp(prefix="gpu-test-")
    try:
        Path(folder).chmod(0o755)
        yield folder
    finally:
        end_strays(folder)
        shutil.rmtree(folder, ignore_errors=True)
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)


def _real_site(work: str, given: argparse.Namespace) -> Site:
    found: tuple[list[str], str] = nvml.gpus() if nvml.load() is not None else ([], "")
    uuids, driver = found
    return Site(
        work=work,
        control=given.mps_control or _control(),
        gpu=given.gpu or (uuids or ["0"])[0],
        driver=driver or given.driver,
        exclusive=given.exclusive,
        nvml=bool(uuids),
    )


def _fake_site(work: str, given: argparse.Namespace) -> Site | None:
    return fake_site(work, control_program=given.mps_control)


def _control() -> str:
    path = os.pathsep.join((os.environ.get("PATH", ""), *_CONTROL_FOLDERS))
    return shutil.which("nvidia-cuda-mps-control", path=path) or ""


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/gpu/run", description=__doc__)
    option = parser.add_argument
    option("--out", metavar="FILE", default="", help="write the answers there")
    option("--dry-run", action="store_true", help="list the steps and try them on fakes")
    option("--only", metavar="STEP", nargs="+", default=[], help="ask these steps")
    option("--total-s", type=float, default=TOTAL_S, help="for all steps together")
    option("--gpu", metavar="UUID", default="", help="default: the first")
    option("--driver", metavar="VERSION", default="", help="where NVML does not tell it")
    option(
        "--mps-control",
        metavar="FILE",
        default="",
        help="default: looked for; with --dry-run: a stub",
    )
    option(
        "--exclusive", action="store_true", help="exclusive compute mode for the step that needs it"
    )
    return parser.parse_args(arguments)
