from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.hook import SANITIZED, FakeProc, HookProgram, build


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> HookProgram:
    """With the time limits of production."""
    return _built(tmp_path_factory.mktemp("hook"))


@pytest.fixture(scope="session")
def built_impatient(tmp_path_factory: pytest.TempPathFactory) -> HookProgram:
    """For calls whose time runs out: with time limits that a test can wait for."""
    limits = ("-DLONG_MS=400", "-DSHORT_MS=300", "-DBRIEF_MS=200")
    return _built(tmp_path_factory.mktemp("impatient"), *limits)


@pytest.fixture
def hook(built: HookProgram) -> HookProgram:
    """The program, with an empty /proc."""
    built.proc.clear()
    return built


@pytest.fixture
def impatient(built_impatient: HookProgram) -> HookProgram:
    """The impatient program, with an empty /proc."""
    built_impatient.proc.clear()
    return built_impatient


def _built(folder: Path, *flags: str) -> HookProgram:
    proc = folder / "proc"
    path = build(folder / "gpuslice-hook", *SANITIZED, f'-DPROC_ROOT="{proc}"', *flags)
    return HookProgram(path, FakeProc(proc))
