"""The checkpoint hook on a node, and what of CRIU and NVIDIA's tools it depends on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import assert_never

from dra_driver.adapters.criu_config import CriuConfig
from dra_driver.adapters.cuda_tool import CudaTools
from dra_driver.adapters.hook_files import HookFiles
from dra_driver.adapters.process import run_program
from dra_driver.app.doctor_folders import connect
from dra_driver.app.doctor_ports import driver_programs
from dra_driver.app.node_side import HOST_PATH, hook_socket, host_command
from dra_driver.errors import AdapterError
from dra_driver.model.doctor import Finding, ok, problem, warning
from dra_driver.plan.criu_config import Absent, Foreign, Installed, NotUnderstood, State
from dra_driver.settings import Settings

_OLDEST_CRIU = (4, 1)
_VERSION = re.compile(r"Version:\s*(\d+)\.(\d+)")
_TIMEOUT_S = 2.0
_INSTALL = "start gpuslice plugin with --checkpoint-hook true, and see its log"
_TAKE_OUT = "let the plugin start once with --checkpoint-hook false (component checkpoint-hook-off)"


def script_socket(settings: Settings) -> str:
    """Where the program on the host asks, as the host sees it."""
    return settings.hook_socket or str(settings.run_dir / "hook.sock")


def hook_program(settings: Settings) -> Finding:
    """The program on the host."""
    subject = "checkpoint hook"
    if not settings.checkpoint_hook:
        path = settings.host_root / settings.hook_path.relative_to("/")
        if path.exists():
            text = f"off, and {settings.hook_path} stays while claims that were prepared with it do"
            return warning(subject, text, _TAKE_OUT)
        return ok(subject, "off (--checkpoint-hook): checkpoints of GPU state are not looked after")
    try:
        files = HookFiles(
            host_root=settings.host_root,
            target=PurePosixPath(settings.hook_path),
            socket=script_socket(settings),
        )
        reason = files.problem()
    except AdapterError as error:
        return warning(subject, str(error), "run the doctor in the plugin's pod")
    if reason is not None:
        return problem(subject, reason, _INSTALL)
    return ok(
        subject, f"{files.target} is the image's, runs, and asks at {script_socket(settings)}"
    )


def criu_config(settings: Settings) -> Iterator[Finding]:
    """What CRIU is told of it."""
    for path, state in CriuConfig(host_root=settings.host_root).states():
        yield _config(path, state, settings)


def criu_program(settings: Settings) -> Finding:
    """The CRIU that a container runtime finds."""
    subject = "CRIU"
    folders = [Path(each) for each in HOST_PATH.split(":")]
    there = [
        folder / "criu"
        for folder in folders
        if os.access(settings.host_root / folder.relative_to("/") / "criu", os.X_OK)
    ]
    if not there:
        bad = problem if settings.checkpoint_hook else ok
        return bad(subject, f"no criu in {HOST_PATH} of the host: nothing can be checkpointed")
    words = host_command(settings.host_root, (str(there[0]), "--version"))
    try:
        ended = run_program(
            words, name="criu", environment={"PATH": HOST_PATH}, timeout_s=_TIMEOUT_S
        )
    except AdapterError as error:
        return warning(subject, str(error))
    return judge_criu(there[0], ended.output, ended.errors)


def judge_criu(program: Path, output: str, errors: str) -> Finding:
    """What to think of what `criu --version` printed."""
    subject, found = "CRIU", _VERSION.search(output)
    if found is None:
        said = " ".join((errors or output).split())[:200]
        mend = "run the doctor as root" if os.geteuid() else ""
        return warning(subject, f"{program} does not tell its version: {said}", mend)
    version = (int(found[1]), int(found[2]))
    text = f"{program}, version {version[0]}.{version[1]}"
    if version < _OLDEST_CRIU:
        mend = f"install {'.'.join(map(str, _OLDEST_CRIU))} or later"
        return warning(subject, f"{text}: it hangs on processes that use CUDA", mend)
    return ok(subject, text)


def cuda_tools(settings: Settings) -> Iterator[Finding]:
    """Who can take CUDA processes off their GPUs."""
    subject = "CUDA checkpoints"
    if settings.simulate and not settings.cuda_checkpoint_path:
        yield ok(subject, "simulated")
        return
    tool = settings.cuda_checkpoint_path
    programs = driver_programs(settings)
    tools = CudaTools(programs, host_root=settings.host_root, tool=Path(tool) if tool else None)
    ability = tools.ability()
    for name, reason in (
        ("by the driver's own interface", ability.no_driver),
        ("by it onto other GPUs", ability.no_migration),
        ("by CRIU's plugin", ability.no_plugin),
    ):
        good = not reason or not settings.checkpoint_hook
        text = f"{name}: {reason or 'yes'}"
        yield ok(subject, text) if good else warning(subject, text)


def hook_sockets(settings: Settings) -> Iterator[Finding]:
    """Whether the plugin answers."""
    if not settings.checkpoint_hook:
        return
    for subject, path in (
        ("hook socket", Path(script_socket(settings))),
        ("checkpoint socket", hook_socket(settings)),
    ):
        try:
            connect(path)
        except OSError as error:
            text = f"{path} does not answer: {error.strerror or error}"
            yield problem(subject, f"{text}; GPU containers cannot be checkpointed", _INSTALL)
        else:
            yield ok(subject, f"{path} answers")


def _config(path: str, state: State, settings: Settings) -> Finding:
    subject, script = f"CRIU configuration {path}", str(settings.hook_path)
    match state:
        case Installed(script=found):
            return _installed(subject, found, script if settings.checkpoint_hook else None)
        case Absent() if settings.checkpoint_hook:
            return problem(subject, "does not name the hook", _INSTALL)
        case Absent():
            return ok(subject, "does not name the hook")
        case Foreign(line=line, script=found):
            return problem(
                subject, f"line {line} runs {found}, by another hand", "remove that line"
            )
        case NotUnderstood(line=line, reason=reason):
            bad = problem if settings.checkpoint_hook or state.ours else warning
            return bad(subject, f"line {line} {reason}", "put that line right")
        case _ as never:
            assert_never(never)


def _installed(subject: str, found: str, wanted: str | None) -> Finding:
    if wanted is None:
        return problem(subject, f"runs {found}, though the hook is off", _TAKE_OUT)
    if found != wanted:
        return problem(subject, f"runs {found} instead of {wanted}", _INSTALL)
    return ok(subject, f"runs {found}")
