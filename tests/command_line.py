"""The command line in this process, apart from its environment."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dra_driver.cli import main
from tests import builders

Run = Callable[..., "Ended"]

SIMULATION = f"""
driverVersion: 570.133.20
cudaVersion: "12.8"
gpus:
- {{uuid: {builders.uuid(0)}, profile: h100-80gb-sxm, numaNode: 1, nvlinkDomain: n0}}
- {{uuid: {builders.uuid(1)}, index: 1, profile: p100}}
- {{uuid: {builders.uuid(2)}, index: 2, profile: t4}}
faults:
- {{gpu: {builders.uuid(2)}, call: memory, error: GPU_IS_LOST}}
"""


@dataclass(frozen=True, slots=True)
class Ended:
    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command line in this process, apart from its environment."""
    for name in [*os.environ]:
        if name.startswith("GPUSLICE_") or name in {"NODE_NAME", "POD_UID"}:
            monkeypatch.delenv(name)

    def run(*arguments: str, stdin: str = "") -> Ended:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        status = main(arguments)
        return Ended(status, *capsys.readouterr())

    return run


@pytest.fixture
def simulation(tmp_path: Path) -> str:
    path = tmp_path / "node.yaml"
    path.write_text(SIMULATION, encoding="utf-8")
    return str(path)
