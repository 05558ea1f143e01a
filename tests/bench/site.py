"""What drivers are measured on: a real API server, nodes, allocated claims, published slices."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from dra_api.kubelet import dra_v1_pb2 as dra
from tests.bench.api import (
    NAMESPACE,
    RESOURCE,
    Api,
    all_of,
    claim_body,
    create_claims,
    named,
    share_of,
)
from tests.bench.drivers import GPUSLICE, MINIMAL, REFERENCE, VARIANTS, Driver, Setup
from tests.kube.client import Json
from tests.kube.harness import GATES, ApiServer
from tests.kube.objects import create_namespace, create_node

WHOLE = 100
"""GPUs that claims take as a whole, each its own: as independent as the reference's devices."""

SHARED = 16
"""Further GPUs, for claims of shares."""

NODE_GPUS = 8
"""GPUs of the nodes whose starts are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Claims as the kubelet names them.

    Attributes:
        whole: each of a GPU of its own.
        shares: spread over the shared GPUs in turn.
    """

    whole: Sequence[dra.Claim]
    shares: Sequence[dra.Claim]


class Site:
    """Drivers run on it one after another or side by side; `setup` is what they need."""

    def __init__(self, server: ApiServer, setup: Setup) -> None:
        self.api = Api(server.admin)
        self.setup = setup
        self._server = server
        create_namespace(server.admin, NAMESPACE)

    def add_node(self, name: str) -> None:
        create_node(self._server.admin, name)

    def slices(self, node: str) -> tuple[Json, ...]:
        found = self.api.request("GET", _slices(node))["items"]
        return tuple(sorted(found, key=lambda each: str(each["metadata"]["name"])))

    def withdraw(self, node: str) -> None:
        """Delete a node's slices, as a kubelet does that starts."""
        self.api.request("DELETE", _slices(node))

    def wait_for_slices(self, node: str) -> float:
        """Wait until a node's pool is whole and give the time, of perf_counter."""
        seen: dict[int, set[str]] = {}
        for event in self.api.watch(f"{_slices(node)}&watch=true&timeoutSeconds=60"):
            arrived_at_s = perf_counter()
            if event["type"] == "DELETED":
                continue
            pool, name = event["object"]["spec"]["pool"], event["object"]["metadata"]["name"]
            names = seen.setdefault(pool["generation"], set())
            names.add(name)
            if len(names) == pool["resourceSliceCount"]:
                return arrived_at_s
        raise AssertionError(f"the slices of {node} were not published within 60 s")

    def publish_alike(self, node: str) -> None:
        """Let the reference publish what stands for `node`."""
        devices = [each["spec"]["devices"] for each in self.slices(node)]
        self.setup.devices.write_text(json.dumps(devices))

    def start(self, variant: str) -> Driver:
        """Start a driver on a large node."""
        node = f"bench-{variant}"
        self.add_node(node)
        return Driver(self.setup, variant, node=node, gpus=WHOLE + SHARED)

    def claims_of(self, driver: Driver, *, shares: int) -> Claims:
        """Create claims that are allocated to a driver's node."""
        gpus = self._gpus(f"bench-{GPUSLICE}")
        whole = [
            claim_body(f"{driver.variant}-whole-{number}", kind="gpu", result=all_of(device))
            for number, device in enumerate(gpus[:WHOLE])
        ]
        parts = [
            claim_body(
                f"{driver.variant}-share-{number}",
                kind="slice",
                result=share_of(gpus[WHOLE + number % SHARED], number),
            )
            for number in range(shares)
        ]
        for body in (*whole, *parts):
            for result in body["status"]["allocation"]["devices"]["results"]:
                result["pool"] = driver.node
        stored = [named(each) for each in create_claims(self.api, [*whole, *parts])]
        return Claims(whole=stored[:WHOLE], shares=stored[WHOLE:])

    def _gpus(self, node: str) -> list[Json]:
        devices = [device for each in self.slices(node) for device in each["spec"]["devices"]]
        gpus = [each for each in devices if each["attributes"]["type"]["string"] == "gpu"]
        return sorted(gpus, key=lambda each: int(each["attributes"]["index"]["int"]))


@contextmanager
def site(folder: Path, *, run_folder: Path, binary: Path) -> Iterator[Site]:
    """Give a site whose API server runs; `binary` is the reference's."""
    with ApiServer(folder / "api", GATES) as server:
        setup = Setup(
            folder=folder,
            run_folder=run_folder,
            binary=binary,
            kubeconfig=server.kubeconfig,
            devices=folder / "devices.json",
        )
        yield Site(server, setup)


@contextmanager
def large_nodes(site: Site) -> Iterator[dict[str, Driver]]:
    """Give a driver of each variant, all running, gpuslice's slices published."""
    drivers: dict[str, Driver] = {}
    try:
        for variant in VARIANTS:
            drivers[variant] = site.start(variant)
            if variant != MINIMAL:
                site.wait_for_slices(drivers[variant].node)
        yield drivers
    finally:
        for driver in drivers.values():
            driver.stop()


def shared_claims(site: Site, drivers: dict[str, Driver], *, shares: int) -> dict[str, Claims]:
    """Claims by variant; both forms of the reference may have the same ones."""
    own = site.claims_of(drivers[GPUSLICE], shares=shares)
    theirs = site.claims_of(drivers[REFERENCE], shares=shares)
    return {variant: own if variant == GPUSLICE else theirs for variant in drivers}


def _slices(node: str) -> str:
    return f"{RESOURCE}/resourceslices?fieldSelector=spec.nodeName%3D{node}"
