"""What a node holds for claims, read from its own files, and what has to be true of it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations
from threading import Event, Thread
from typing import Self

from dra_driver.model.quantity import MIB, parse_quantity
from tests.cluster.deployed import DRIVER, attribute, published
from tests.kube.client import Json
from tests.kube.cluster import Cluster
from tests.kube.process import wait_until

CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"

_SPEC_PREFIX = f"{DRIVER}-claim_"
_TICK_S = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The driver's records and CDI specs, by claim UID; claims that the kubelet holds; shares by GPU."""

    records: dict[str, Json]
    specs: dict[str, str]
    kubelet: frozenset[str]
    shares: dict[str, list[Json]]

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        return cls(
            records=_records(cluster),
            specs=_files(cluster, "/run/cdi", prefix=_SPEC_PREFIX),
            kubelet=_kubelet_claims(cluster),
            # What the supervisor of MPS keeps; of a free GPU its proof alone.
            shares={
                gpu: shares
                for gpu, text in _files(cluster, "/run/gpuslice/mpsd").items()
                if (shares := json.loads(text)["shares"])
            },
        )

    @property
    def claims(self) -> frozenset[str]:
        """UIDs of all claims of which anything is left anywhere."""
        shared = (share["id"][:36] for shares in self.shares.values() for share in shares)
        return self.kubelet.union(self.records, self.specs, shared)


def wait_until_settled(cluster: Cluster, *, timeout_s: float = 30.0) -> None:
    """Wait until the node holds exactly what pods use, the same everywhere it is written down."""
    wait_until(
        lambda: "; ".join(_disagreements(cluster)),
        waiting_for="the node to hold what its pods use, and nothing else",
        timeout_s=timeout_s,
    )


@contextmanager
def nothing_given_twice(cluster: Cluster) -> Iterator[None]:
    """Look at the journal all the time, and fail if two claims ever held the same."""
    memory_mib = _published_memory(cluster)
    seen: set[str] = set()
    stop = Event()

    def watch() -> None:
        before: dict[str, Json] = {}
        while not stop.wait(_TICK_S):
            # Files are read one after the other: only what stood in two rounds stood together.
            now = _records(cluster)
            both = [now[uid] for uid in now.keys() & before.keys()]
            seen.update(given_twice(both, memory_mib))
            before = now

    thread = Thread(target=watch, name="watch-journal")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not seen, "\n".join(sorted(seen))


def given_twice(records: list[Json], memory_mib: Mapping[str, int]) -> Iterator[str]:
    """Name what records hold together that only one may hold.

    `memory_mib` is what each GPU has to give; others are not judged by their memory.
    """
    uses = [(record, use) for record in records for use in record["uses"]]
    for (first, one), (second, other) in combinations(uses, 2):
        # What another boot's records say is not held any more.
        if first["bootId"] != second["bootId"] or one["gpu"] != other["gpu"]:
            continue
        kinds = {one["use"], other["use"]}
        same = one["shareId"] is not None and one["shareId"] == other["shareId"]
        if "Monitor" not in kinds and (same or "Exclusive" in kinds):
            holders = " and ".join(record["claim"]["name"] for record in (first, second))
            yield f"{one['gpu']} is held by {holders}"
    for gpu in {use["gpu"] for _, use in uses}:
        boots = {record["bootId"] for record, use in uses if use["gpu"] == gpu}
        for boot in boots:
            shares = [
                use
                for record, use in uses
                if (use["gpu"], record["bootId"], use["use"]) == (gpu, boot, "Shared")
            ]
            compute = [each["computePercent"] for each in shares]
            if sum(compute) > 100:
                yield f"{gpu} is held to {sum(compute)} %: {compute}"
            memory = [each["memoryMib"] for each in shares]
            if sum(memory) > (most := memory_mib.get(gpu, sum(memory))):
                yield f"{gpu} is held to {sum(memory)} MiB of {most}: {memory}"


def kubelet_answers(cluster: Cluster, uid: str) -> list[Json]:
    """Give the devices that the kubelet was told of a claim, in every answer."""
    (claim,) = (each for each in _kubelet_state(cluster) if each["ClaimUID"] == uid)
    devices: list[Json] = claim["DriverState"][DRIVER]["Devices"]
    return devices


def _disagreements(cluster: Cluster) -> Iterator[str]:
    """Say where the node's files differ from the claims of its pods, or from each other."""
    held, used = Holdings.of(cluster), _claims_in_use(cluster)
    places = {
        "the journal": held.records.keys(),
        "the CDI folder": held.specs.keys(),
        "the kubelet": held.kubelet,
        "any place": held.claims,
    }
    for place, uids in places.items():
        for uid in sorted(uids - used.keys()):
            yield f"{place} still has claim {uid}"
        for uid in sorted(used.keys() - uids):
            yield f"{place} lacks claim {used[uid]['metadata']['name']}"
    yield from given_twice(list(held.records.values()), _published_memory(cluster))
    for uid, record in held.records.items():
        if record["state"] != "Prepared":
            yield f"claim {uid} is {record['state']}"
        if uid in used:
            yield from _unlike_allocation(record, used[uid])
        specs = [step["writeCdiSpec"] for step in record["steps"] if "writeCdiSpec" in step]
        if [spec["content"] for spec in specs] != [held.specs.get(uid)]:
            yield f"the CDI spec of claim {uid} is not that of its record"
    if (wanted := _shares_of(held.records)) != held.shares:
        yield f"shares are {held.shares}, but records say {wanted}"
    if len({record["bootId"] for record in held.records.values()}) > 1:
        yield "records are of different boots"


def _published_memory(cluster: Cluster) -> dict[str, int]:
    """Give the MiB that each shared GPU has to give, by UUID; none while nothing is published."""
    return {
        str(attribute(each, "uuid")): int(parse_quantity(each["capacity"]["memory"]["value"]))
        // MIB
        for each in published(cluster)
        if each.get("allowMultipleAllocations")
    }


def _unlike_allocation(record: Json, claim: Json) -> Iterator[str]:
    results = claim["status"]["allocation"]["devices"]["results"]
    ours = [result for result in results if result["driver"] == DRIVER]
    given = sorted((result["device"], result.get("shareID", "")) for result in ours)
    held = sorted((use["device"], use["shareId"] or "") for use in record["uses"])
    if given != held:
        yield f"claim {claim['metadata']['name']} was given {given}, but holds {held}"


def _shares_of(records: dict[str, Json]) -> dict[str, list[Json]]:
    shares: dict[str, list[Json]] = {}
    for record in records.values():
        for step in record["steps"]:
            if share := step.get("ensureShare"):
                fields = {name: value for name, value in share.items() if name != "gpu"}
                shares.setdefault(share["gpu"], []).append(fields)
    return {gpu: sorted(each, key=lambda share: share["id"]) for gpu, each in shares.items()}


def _claims_in_use(cluster: Cluster) -> dict[str, Json]:
    """Give the claims, by UID, of which the driver gave a part of the node to a pod."""
    found = {}
    for claim in cluster.admin.list(CLAIMS):
        status = claim.get("status", {})
        results = status.get("allocation", {}).get("devices", {}).get("results", ())
        here = any(
            (result["driver"], result["pool"]) == (DRIVER, cluster.node_name) for result in results
        )
        if here and status.get("reservedFor"):
            found[claim["metadata"]["uid"]] = claim
    return found


def _kubelet_claims(cluster: Cluster) -> frozenset[str]:
    claims = _kubelet_state(cluster)
    return frozenset(each["ClaimUID"] for each in claims if DRIVER in each["DriverState"])


def _kubelet_state(cluster: Cluster) -> list[Json]:
    text = cluster.node_path("/var/lib/kubelet/dra_manager_state").read_text()
    return json.loads(json.loads(text)["Data"])["ClaimInfoStateList"] or []


def _records(cluster: Cluster) -> dict[str, Json]:
    files = _files(cluster, "/var/lib/gpuslice/claims")
    return {uid: json.loads(text) for uid, text in files.items()}


def _files(cluster: Cluster, folder: str, *, prefix: str = "") -> dict[str, str]:
    """Give the content of a folder's JSON files by what stands between prefix and ending."""
    found = {}
    for path in sorted(cluster.node_path(folder).glob(f"{prefix}*.json")):
        if not path.name.startswith("."):
            with suppress(FileNotFoundError):
                found[path.stem.removeprefix(prefix)] = path.read_text()
    return found
