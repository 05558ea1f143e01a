from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

# How long an example takes says more about the machine's other work than about the driver.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture
def root() -> Iterator[Path]:
    """A kubelet's root folder; short, because paths of sockets have to be."""
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _log_settings() -> Iterator[None]:
    """Commands under test set up logs for their process, which is this one."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
