"""What takes CUDA state of processes along on this node: the driver's API, and CRIU by itself."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dra_driver.adapters import cuda_helper
from dra_driver.adapters.cuda_calls import call_driver
from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.process import run_program
from dra_driver.errors import AdapterError
from dra_driver.model.cuda import MIGRATION_CUDA, CheckpointAbility

_TOOL = "cuda-checkpoint"
_PLUGIN = "cuda_plugin.so"
_CONFIGS = ("etc/criu/runc.conf", "etc/criu/default.conf")
"""The first that names a folder of plugins has the say."""

_LIBDIR = re.compile(r"[ \t]*libdir(?:[ \t]+|[ \t]*=[ \t]*)\"?(/[^ \t\"#]*)")
_PLUGIN_FOLDERS = (
    "usr/lib/criu",
    "usr/local/lib/criu",
    "usr/lib64/criu",
    "usr/local/lib64/criu",
    "usr/lib/x86_64-linux-gnu/criu",
    "usr/lib/aarch64-linux-gnu/criu",
)
_PROGRAM_FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
"""PATH of services, among them container runtimes, which hand it on to CRIU."""

_ACTION = "--action"
"""What CRIU's plugin looks for in the help text: tools of drivers below 555 can only toggle."""

_HELPER_TIMEOUT_S, _TOOL_TIMEOUT_S = 20.0, 10.0


class CudaTools:
    """Looks anew at every call; asks nothing of a GPU.

    Args:
        programs: where libcuda is.
        host_root: where the host's / is seen.
        tool: the program cuda-checkpoint; None: looked for on the host's PATH, as CRIU does.
    """

    def __init__(
        self, programs: DriverPrograms, *, host_root: Path, tool: Path | None = None
    ) -> None:
        self._programs = programs
        self._root = host_root
        self._tool = tool

    def ability(self) -> CheckpointAbility:
        """What works, and why the rest does not."""
        no_driver, no_migration = self._driver()
        return CheckpointAbility(
            no_driver=no_driver, no_migration=no_migration, no_plugin=self.no_plugin()
        )

    def no_plugin(self) -> str:
        """Why CRIU leaves CUDA state alone; empty: it takes it along."""
        folders = self._plugin_folders()
        if not any((self._root / folder / _PLUGIN).is_file() for folder in folders):
            return f"CRIU has no {_PLUGIN} in {' or '.join(f'/{each}' for each in folders)}"
        tool = self._tool or self._found()
        if tool is None:
            return f"there is no {_TOOL} on the host's PATH for CRIU's {_PLUGIN}"
        return self._no_use(tool)

    def _driver(self) -> tuple[str, str]:
        """Why there is no API, and why no GPU can be exchanged through it; empty where it works."""
        try:
            answer = call_driver(self._programs, cuda_helper.VERSION, timeout_s=_HELPER_TIMEOUT_S)
        except AdapterError as error:
            return str(error), str(error)
        if answer.code or answer.value is None:
            text = f"{answer.step} gives {answer.name} ({answer.code})"
            return text, text
        if answer.value < MIGRATION_CUDA:
            return "", (
                "restore onto other GPUs needs NVIDIA driver 580 or newer, and this one runs CUDA "
                f"{answer.value // 1000}.{answer.value % 1000 // 10}"
            )
        return "", ""

    def _no_use(self, tool: Path) -> str:
        """Why CRIU's plugin makes nothing of a tool; empty where it does."""
        try:
            done = run_program(
                [str(tool), "-h"],
                name=_TOOL,
                environment=self._programs.environment(),
                timeout_s=_TOOL_TIMEOUT_S,
            )
        except AdapterError as error:
            return str(error)
        if done.status is None:
            return f"{tool} -h does not end within {_TOOL_TIMEOUT_S:g} s"
        if done.status != 0:
            last = (done.errors or done.output).strip().splitlines()[-1:] or ["no text"]
            return f"{tool} -h ends with status {done.status}: {last[0]}"
        if _ACTION not in done.output + done.errors:
            return f"{tool} knows no {_ACTION}: take the one of NVIDIA driver 555 or newer"
        return ""

    def _found(self) -> Path | None:
        paths = (self._root / folder / _TOOL for folder in _PROGRAM_FOLDERS)
        return next((path for path in paths if os.access(path, os.X_OK)), None)

    def _plugin_folders(self) -> tuple[str, ...]:
        """Below the host's root."""
        for config in _CONFIGS:
            try:
                text = (self._root / config).read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            named = [match[1] for line in text.splitlines() if (match := _LIBDIR.match(line))]
            if named:
                return (named[-1].strip("/"),)
        return _PLUGIN_FOLDERS
