"""A node whose shares are enforced: the plugin, `gpuslice mpsd` and real MPS control daemons.

Their servers, which need GPUs, are simulated.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGKILL
from threading import Event
from time import perf_counter
from uuid import uuid4

from dra_api.kubelet import dra_v1_pb2 as dra
from dra_driver.adapters.mps_processes import Processes
from tests import builders
from tests.bench.api import all_of, claim_body, create_claims, named, share_of
from tests.bench.drivers import GPUSLICE, Driver, Setup, environment, simulation_file
from tests.bench.site import Site
from tests.kube.build import mps_driver_root
from tests.kube.client import Json

NODE = "mps"
"""Short: the path of a socket has 107 characters at most."""

VERSION = "550.163.01"
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_QUESTION = b"get_default_active_thread_percentage\n"
_POLL_S = 0.001
_ANSWERS_S = 20.0
_STOP_S = 20.0


class MpsNode:
    """Its GPUs bear names of their own: MPS of others on this machine is not in the way."""

    def __init__(self, site: Site, driver: Driver, uuids: Sequence[str]) -> None:
        self.driver = driver
        self._site = site
        self._uuids = tuple(uuids)

    def wait(self) -> None:
        self._site.wait_for_slices(NODE)

    def whole(self, gpu: int) -> dra.Claim:
        """A claim of a whole GPU."""
        body = claim_body(f"{NODE}-whole-{gpu}", kind="gpu", result=all_of(self._device(gpu)))
        return self._create([body])[0]

    def shares(self, gpu: int, count: int) -> list[dra.Claim]:
        """Claims of shares of one GPU."""
        device = self._device(gpu)
        bodies = [
            claim_body(
                f"{NODE}-share-{gpu}-{number}",
                kind="slice",
                result=share_of(device, 100 * gpu + number),
            )
            for number in range(count)
        ]
        return self._create(bodies)

    def block(self, gpu: int, delay_s: float) -> None:
        """Let the GPU driver hang in the next call that changes a GPU's compute mode."""
        fault = f"{{gpu: {self._uuids[gpu]}, call: setComputeMode, delay: {delay_s:g}s, times: 1}}"
        path = simulation_file(self._site.setup, NODE)
        written = path.with_suffix(".new")
        written.write_text(f"{_simulation(self._uuids)}faults:\n- {fault}\n")
        written.replace(path)

    def _device(self, gpu: int) -> Json:
        devices = [each for body in self._site.slices(NODE) for each in body["spec"]["devices"]]
        return next(
            each
            for each in devices
            if each["attributes"]["type"]["string"] == "gpu"
            and each["attributes"]["uuid"]["string"] == self._uuids[gpu]
        )

    def _create(self, bodies: list[Json]) -> list[dra.Claim]:
        for body in bodies:
            for result in body["status"]["allocation"]["devices"]["results"]:
                result["pool"] = NODE
        return [named(each) for each in create_claims(self._site.api, bodies)]


class BareDaemon:
    """What no first share can be faster than: a control daemon's own start, and its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "log"
        self._environment = {
            _PIPES: str(folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(folder),
            "CUDA_VISIBLE_DEVICES": f"GPU-{uuid4()}",
        }
        (folder / "pipe").mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Seconds until it answers."""
        never, started = Event(), perf_counter()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [_control(), "-f"], stdout=log, stderr=log, env=self._environment
            )
        while not self._answers():
            assert perf_counter() < started + _ANSWERS_S, self._log.read_text()
            never.wait(_POLL_S)
        return perf_counter() - started

    def quit(self) -> float:
        """Seconds until it has ended."""
        started = perf_counter()
        self._ask(b"quit\n")
        assert self._process is not None
        self._process.wait(_STOP_S)
        return perf_counter() - started

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        return (self._folder / "pipe/control").exists() and self._ask(_QUESTION) == b"100.0\n"

    def _ask(self, command: bytes) -> bytes:
        return subprocess.run(
            [_control()], input=command, capture_output=True, env=self._environment, check=False
        ).stdout


@contextmanager
def mps_node(site: Site, gpus: int) -> Iterator[MpsNode]:
    """Give the node, whose slices are published; no daemon is left behind."""
    site.add_node(NODE)
    uuids = [f"GPU-{uuid4()}" for _ in range(gpus)]
    socket = site.setup.run_folder / NODE / "mpsd.sock"
    driver = Driver(
        site.setup,
        GPUSLICE,
        node=NODE,
        gpus=gpus,
        document=_simulation(uuids),
        flags={"mpsd-socket": str(socket), "mps-single-uid": str(os.getuid())},
    )
    try:
        with _mpsd(site.setup):
            node = MpsNode(site, driver, uuids)
            node.wait()
            yield node
    except BaseException:
        print(driver.log)
        raise
    finally:
        driver.stop()
        _kill_daemons(site.setup.run_folder)


@contextmanager
def _mpsd(setup: Setup) -> Iterator[None]:
    flags = {
        "simulate": simulation_file(setup, NODE),
        "run-dir": setup.run_folder / NODE,
        "mps-control-path": _control(),
        "mps-single-uid": os.getuid(),
    }
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    path = setup.folder / NODE / "mpsd.log"
    with path.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dra_driver", "mpsd", *arguments],
            stdout=log,
            stderr=log,
            env=environment(setup.folder),
        )
    try:
        yield
    except BaseException:
        print(path.read_text(errors="replace"))
        raise
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        process.kill()
        process.wait()


def _kill_daemons(run_folder: Path) -> None:
    """End those of this run that shares have left, which outlive mpsd."""
    for each in Processes().mps():
        if each.environment and each.environment.get(_PIPES, "").startswith(f"{run_folder}/"):
            with suppress(ProcessLookupError):
                os.kill(each.process.pid, SIGKILL)


def _control() -> Path:
    return mps_driver_root(VERSION) / "usr/bin/nvidia-cuda-mps-control"


def _simulation(uuids: Sequence[str]) -> str:
    lines = [
        f"driverVersion: {VERSION}",
        'cudaVersion: "12.4"',
        f"bootId: {builders.BOOT}",
        "gpus:",
    ]
    lines += [
        f"- {{uuid: {uuid}, profile: h100-80gb-sxm, index: {number}}}"
        for number, uuid in enumerate(uuids)
    ]
    return "\n".join(lines) + "\n"
