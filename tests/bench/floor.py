"""What no driver can be faster than here: one GET of the claim and its two durable files."""

# ruff: noqa: PTH105, PTH108 - the floor is what the system calls take

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

from dra_api.kubelet import dra_v1_pb2 as dra
from tests.bench.api import RESOURCE, Api

_CONTENT = b"x" * 600


class Floor:
    """The bare work of a prepare and an unprepare, without a driver or a call to one."""

    def __init__(self, folder: Path, api: Api) -> None:
        self._folders = (folder / "floor-cdi", folder / "floor-state")
        self._api = api
        for each in self._folders:
            each.mkdir(parents=True, exist_ok=True)

    def prepare(self, claim: dra.Claim) -> float:
        path = f"{RESOURCE}/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
        started = perf_counter()
        self._api.raw(path)
        for folder in self._folders:
            write_durably(folder, claim.uid)
        return perf_counter() - started

    def unprepare(self, claim: dra.Claim) -> float:
        started = perf_counter()
        for folder in self._folders:
            os.unlink(folder / claim.uid)
            sync(folder)
        return perf_counter() - started


def write_durably(folder: Path, name: str) -> None:
    """Put a small file in place as all that is kept over a power cut."""
    temporary = folder / f".{name}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(descriptor, _CONTENT)
    os.fsync(descriptor)
    os.close(descriptor)
    os.replace(temporary, folder / name)
    sync(folder)


def sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)
