"""What the demo does, in order. Every sentence is made of what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from time import monotonic
from typing import Any

import yaml

from dra_driver.app.demo_cluster import DemoCluster
from dra_driver.app.demo_node import PROFILE, DemoNode
from dra_driver.app.demo_values import DRIVER, DemoError, GpuUsage, Json, PodOutcome, gpu_usage
from dra_driver.app.demo_view import View
from dra_driver.model.quantity import MIB, parse_quantity

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
JOBS, QUARTER, WHOLE, NODE_WIDE = "small-jobs", "quarter", "whole-gpu", "whole-node"
_TYPO = "Garanteed"


class Story:
    """The chapters in which pods come; `result` holds what happened, for scripts."""

    def __init__(self, node: DemoNode, cluster: DemoCluster, view: View) -> None:
        self._node = node
        self._cluster = cluster
        self._view = view
        self.result: dict[str, Any] = {}

    def start(self) -> None:
        """Start the plugin, and show what it found."""
        self._view.chapter("A node with GPUs")
        pid = self._node.start_plugin()
        start_s = monotonic()
        self._node.wait_for(self._node.registered, "the kubelet registered it")
        registered_s = monotonic() - start_s
        devices, _ = self._node.wait_for(self._node.devices, "its devices were published")
        published_s = monotonic() - start_s
        self._view.text(
            f"The plugin runs as process {pid}. {registered_s:.1f} s after its start the kubelet"
            f" knew it, and after {published_s:.1f} s its devices were published:"
        )
        gpus = _of_type(devices, "gpu")
        self._view.table(
            ("GPU", "model", "memory for pods", "NUMA node", "UUID"), list(map(_gpu_row, gpus))
        )
        self.result["start"] = {
            "registeredSeconds": round(registered_s, 3),
            "publishedSeconds": round(published_s, 3),
            "gpus": [each["attributes"]["uuid"]["string"] for each in gpus],
        }

    def show_slices(self) -> None:
        """Show what the scheduler has to count with."""
        self._view.chapter("What the scheduler sees")
        slices, devices = self._node.slices(), self._node.devices()
        kinds = Counter(each["attributes"]["type"]["string"] for each in devices)
        listed = ", ".join(f"{count} of type {kind}" for kind, count in sorted(kinds.items()))
        first = _of_type(devices, "gpu")[0]
        self._view.text(
            f"{_number(len(slices), 'ResourceSlice')} on Kubernetes {PROFILE.git_version} with"
            f" {_number(len(devices), 'device')}: {listed}. Each GPU can be given out in parts:"
        )
        self._view.table(
            ("capacity", "there is", "smallest part", "steps of", "if not asked"),
            [_capacity_row(name, body) for name, body in first["capacity"].items()],
        )
        self._cluster.create(read_manifest(MANIFESTS / "base/deviceclasses.yaml"))
        self.result["devices"] = dict(sorted(kinds.items()))

    def run_jobs(self) -> None:
        """Twenty small jobs, and where they land."""
        self._view.chapter("Small jobs share a GPU")
        documents = _example(JOBS)
        pods = self._cluster.create(documents)
        asked = _asked(documents)
        self._view.text(
            f"{len(pods)} jobs ask for {asked['memory']} of GPU memory each, and for no compute"
            f" ({_path(JOBS)})."
        )
        before_s = monotonic()
        with self._view.filling() as update:
            for name in pods:
                outcome = self._run(name)
                update(self.usage(), f"{name} runs on {self._gpus_of(outcome)}")
        took_s = monotonic() - before_s
        used = [gpu for gpu in self.usage() if gpu.tenants]
        where = ", ".join(f"{_number(gpu.tenants, 'job')} on GPU\u00a0{gpu.index}" for gpu in used)
        self._view.text(
            f"All run: {where}. From pod to prepared share a job took"
            f" {took_s * 1000 / len(pods):.0f} ms."
        )
        self.result["jobs"] = {
            "count": len(pods),
            "gpus": {str(gpu.index): gpu.tenants for gpu in used},
            "seconds": round(took_s, 3),
        }

    def run_tenants(self) -> None:
        """A slice of two dimensions, and a whole GPU."""
        self._view.chapter("A slice, and a whole GPU")
        for example, kind in ((QUARTER, "slice"), (WHOLE, "whole")):
            documents = _example(example)
            (name,) = self._cluster.create(documents)
            outcome = self._run(name)
            asked = _asked(documents)
            wish = (
                f"asks for {asked['compute']} % of compute and {asked['memory']} of memory"
                if asked
                else "names no amounts"
            )
            self._view.text(
                f"{name} {wish} ({_path(example)}) and gets {self._gpus_of(outcome)}"
                f"{self._alone(outcome)}."
            )
            self.result[kind] = {"pod": name, "devices": list(outcome.devices)}
        self._view.usage(self.usage())
        default = _of_type(self._node.devices(), "gpu")[0]["capacity"]["compute"]["requestPolicy"]
        self._view.text(
            f"This is what the scheduler counts; it counts {default['default']} % of compute for a"
            " pod that names none."
        )

    def refuse(self) -> None:
        """What a user sees when there is no room, and when the claim is wrong."""
        self._view.chapter("What cannot be had is refused, with a reason")
        documents = _example(NODE_WIDE)
        (name,) = self._cluster.create(documents)
        count = documents[0]["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"]
        free = sum(not gpu.tenants for gpu in self.usage())
        waiting = self._refused(name)
        self._view.text(
            f"{name} wants {count} whole GPUs ({_path(NODE_WIDE)}) while {free} are untouched."
            " It waits; its Event:"
        )
        self._view.alarm(f"{waiting.reason}: {waiting.message}")
        wrong = _with_typo(_example(QUARTER))
        (typo,) = self._cluster.create(wrong)
        failed = self._refused(typo)
        self._view.text(
            f"{typo} fits, but its claim's configuration says qos: {_TYPO}. The scheduler cannot"
            " know, the driver does. The pod's Event:"
        )
        self._view.alarm(f"{failed.reason}: {failed.message}")
        for each in (documents, wrong):
            self._cluster.remove(each)
        self.result["refused"] = {"scheduler": waiting.message, "driver": failed.message}

    def usage(self) -> tuple[GpuUsage, ...]:
        return gpu_usage(self._node.slices(), self._cluster.claims())

    def _run(self, name: str) -> PodOutcome:
        outcome = self._cluster.start(name)
        if not outcome.running:
            raise DemoError(f"pod {name} does not run: {outcome.reason}: {outcome.message}")
        return outcome

    def _refused(self, name: str) -> PodOutcome:
        outcome = self._cluster.start(name)
        if outcome.running:
            raise DemoError(f"pod {name} runs, although there should be a reason to refuse it")
        return outcome

    def _alone(self, outcome: PodOutcome) -> str:
        """Whether nothing fits beside it, as an afterthought."""
        full = [gpu for gpu in self.usage() if gpu.memory_mib == gpu.memory_total_mib]
        alone = {gpu.device for gpu in full if gpu.tenants == 1} >= set(outcome.devices)
        return ": all of its memory, so nobody else fits there" if alone else ""

    def _gpus_of(self, outcome: PodOutcome) -> str:
        index = {gpu.device: gpu.index for gpu in self.usage()}
        amounts = [
            result.get("consumedCapacity", {})
            for claim in outcome.claims
            for result in claim["status"]["allocation"]["devices"]["results"]
        ]
        return ", ".join(
            f"GPU\u00a0{index[device]} ({_mib(amount['memory']):,} MiB)"
            for device, amount in zip(outcome.devices, amounts, strict=True)
        )


def read_manifest(path: Path) -> list[dict[str, Any]]:
    """Read the objects of a file.

    Raises:
        DemoError: it is not there: the demo runs from a checkout.
    """
    try:
        return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise DemoError(f"{path} cannot be read: {error}; run the demo from a checkout") from error


def _example(name: str) -> list[dict[str, Any]]:
    return read_manifest(MANIFESTS / f"examples/{name}.yaml")


def _path(example: str) -> str:
    return f"manifests/examples/{example}.yaml"


def _asked(documents: Sequence[Json]) -> dict[str, str]:
    """The amounts that the first request of the file's template names."""
    request = documents[0]["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    found: dict[str, str] = request.get("capacity", {}).get("requests", {})
    return found


def _with_typo(documents: Sequence[Json]) -> list[Json]:
    """The same claim and pod under other names, with a typing mistake in its configuration."""
    template, pod = deepcopy(list(documents))
    template["metadata"]["name"] = pod["metadata"]["name"] = "mistyped"
    pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "mistyped"
    parameters = {
        "apiVersion": "config.gpuslice.io/v1alpha1",
        "kind": "SliceConfig",
        "qos": _TYPO,
    }
    opaque = {"driver": DRIVER, "parameters": parameters}
    template["spec"]["spec"]["devices"]["config"] = [{"opaque": opaque}]
    return [template, pod]


def _of_type(devices: Sequence[Json], kind: str) -> list[Json]:
    return [each for each in devices if each["attributes"]["type"]["string"] == kind]


def _gpu_row(device: Json) -> tuple[object, ...]:
    value: Callable[[str], Any] = lambda name: next(  # noqa: E731 - an attribute has one value
        iter(device["attributes"].get(name, {"": "-"}).values())
    )
    return (
        value("index"),
        value("productName"),
        f"{_mib(device['capacity']['memory']['value']):,} MiB",
        value("resource.kubernetes.io/numaNode"),
        value("uuid"),
    )


def _capacity_row(name: str, body: Json) -> tuple[object, ...]:
    policy = body["requestPolicy"]
    limits = policy["validRange"]
    return name, body["value"], limits["min"], limits["step"], policy["default"]


def _mib(text: str) -> int:
    return int(parse_quantity(text) / MIB)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
