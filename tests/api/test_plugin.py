"""The plugin process on a real kube-apiserver, with no more rights than its manifests give."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dra_driver.model.claim import ClaimRef
from dra_driver.sim.kubelet import FakeKubelet
from dra_driver.sim.kubelet_values import KubeletClaim, KubeletError
from tests import builders
from tests.api.plugin_identity import plugin_token
from tests.component.node_rig import TIMES, PluginProcess, simulation
from tests.kube.harness import ApiServer
from tests.kube.objects import create_namespace, create_node
from tests.waiting import eventually

RESOURCE = "/apis/resource.k8s.io/v1"
EVENTS = "/api/v1/namespaces/{namespace}/events"
_numbers = itertools.count(1)


class Site:
    """A node, a namespace and the shipped rights on a shared server, and a kubelet."""

    def __init__(self, server: ApiServer, root: Path) -> None:
        self.server = server
        self.root = root
        number = next(_numbers)
        self.node = f"plugin-{number}"
        self.namespace = f"team-{number}"
        create_node(server.admin, self.node)
        create_namespace(server.admin, self.namespace)
        self.kubeconfig = self._identity()
        self.kubelet = FakeKubelet(root / "k", wipe=self.wipe, times=TIMES)
        self.cdi = root / "cdi"

    def wipe(self) -> None:
        self.server.admin.delete(
            f"{RESOURCE}/resourceslices", fieldSelector=f"spec.nodeName={self.node}"
        )

    @contextmanager
    def plugin(self, **flags: str) -> Iterator[PluginProcess]:
        values = {
            "node-name": self.node,
            "kubeconfig": str(self.kubeconfig),
            "simulate": str(self.root / "node.yaml"),
            "kubelet-registrar-directory-path": str(self.kubelet.registry),
            "kubelet-plugins-directory-path": str(self.kubelet.plugins_folder),
            "cdi-root": str(self.cdi),
            "state-dir": str(self.root / "state"),
            "run-dir": str(self.root / "run"),
        } | flags
        (self.root / "node.yaml").write_text(simulation())
        process = PluginProcess(
            [f"--{name}={value}" for name, value in values.items()], self.root / "plugin.log"
        )
        try:
            yield process
        except BaseException:
            print(process.log)
            raise
        finally:
            process.kill()

    def devices(self) -> list[dict[str, Any]]:
        slices = self.server.admin.list(
            f"{RESOURCE}/resourceslices", fieldSelector=f"spec.nodeName={self.node}"
        )
        return [device for each in slices for device in each["spec"].get("devices", ())]

    def allocate(self, name: str, result: dict[str, Any], request: dict[str, Any]) -> KubeletClaim:
        """Create a claim and allocate it as the scheduler does: in its status, by hand."""
        path = f"{RESOURCE}/namespaces/{self.namespace}/resourceclaims"
        claim = self.server.admin.create(
            path,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
            },
        )
        claim["status"] = {"allocation": {"devices": {"results": [result | {"pool": self.node}]}}}
        stored = self.server.admin.replace(f"{path}/{name}/status", claim)
        return KubeletClaim(
            ref=ClaimRef(self.namespace, name, stored["metadata"]["uid"]),
            drivers=(builders.DRIVER,),
        )

    def events(self) -> list[str]:
        found = self.server.admin.list(EVENTS.format(namespace=self.namespace))
        return [f"{each['reason']}: {each['message']}" for each in found]

    def _identity(self) -> Path:
        token = plugin_token(self.server, node=self.node)
        return self.server.write_kubeconfig(self.node, token=token)


@pytest.fixture(params=["api_default", "api_gates"])
def site(request: pytest.FixtureRequest, root: Path) -> Iterator[Site]:
    site = Site(request.getfixturevalue(request.param), root)
    with site.kubelet:
        yield site
    site.wipe()


def test_plugin_serves_a_whole_gpu_under_its_own_rights(site: Site) -> None:
    with site.plugin() as plugin:
        device = _first_gpu(site)
        claim = site.allocate("whole", _result(device["name"]) | _consumed(device), _request("gpu"))
        site.kubelet.prepare("pod", [claim])
        (spec,) = list(site.cdi.iterdir())
        assert "GPUSLICE_COMPUTE_PERCENT=100" in spec.read_text()
        site.kubelet.unprepare("pod")
        assert list(site.cdi.iterdir()) == []
        assert "Forbidden" not in plugin.log


def test_plugin_enforces_the_share_that_the_server_stored(api_gates: ApiServer, root: Path) -> None:
    site = Site(api_gates, root)
    with site.kubelet, site.plugin():
        device = _first_gpu(site)
        request = _request("slice") | {"capacity": {"requests": {"compute": "25", "memory": "6Gi"}}}
        result = builders.share_result(device["name"], memory="6144Mi")
        claim = site.allocate("slice", result, request)
        site.kubelet.prepare("pod", [claim])
        (spec,) = list(site.cdi.iterdir())
        assert "GPUSLICE_MEMORY_MIB=6144" in spec.read_text()
        (answer,) = site.kubelet.devices(claim.ref.uid)
        assert answer.share_id == result["shareID"]
        site.kubelet.unprepare("pod")
    site.wipe()


def test_plugin_heals_its_slices_when_a_kubelet_starts(site: Site) -> None:
    with site.plugin():
        before = eventually(site.devices, 20, "devices are published")
        site.kubelet.restart()
        eventually(lambda: site.devices() == before, 20, "the same devices are published again")
        eventually(lambda: _registered(site), 10, "the driver is registered again")


def test_plugin_says_what_is_wrong_with_a_claim_when_it_refuses_it(site: Site) -> None:
    with site.plugin():
        device = _first_gpu(site)
        monitor = device["name"] + "-monitor"
        claim = site.allocate("peek", _result(monitor), _request("monitor"))
        with pytest.raises(KubeletError, match="adminAccess") as caught:
            site.kubelet.prepare("pod", [claim])
        assert monitor in str(caught.value)
        site.kubelet.unprepare("pod")


def test_plugin_warns_by_an_event_when_a_claim_asks_for_compute_only(
    api_gates: ApiServer, root: Path
) -> None:
    site = Site(api_gates, root)
    with site.kubelet, site.plugin():
        device = _first_gpu(site)
        request = _request("slice") | {"capacity": {"requests": {"compute": "25"}}}
        result = _result(device["name"]) | _consumed(device, compute="25")
        site.kubelet.prepare("pod", [site.allocate("compute-only", result, request)])
        (event,) = eventually(site.events, 10, "an Event about the claim")
        assert event.startswith("PreparedWithWarning: ")
        assert "memory" in event
        site.kubelet.unprepare("pod")
    site.wipe()


def test_policy_refuses_slices_of_another_node(site: Site) -> None:
    token = site.kubeconfig
    stranger = f"{site.node}-other"
    create_node(site.server.admin, stranger)
    with site.plugin(**{"node-name": stranger}) as plugin:
        eventually(lambda: "may not write slices of node" in plugin.log, 20, "the refusal")
        assert token.exists()
    found = site.server.admin.list(
        f"{RESOURCE}/resourceslices", fieldSelector=f"spec.nodeName={stranger}"
    )
    assert found == ()


def _first_gpu(site: Site) -> dict[str, Any]:
    eventually(lambda: _registered(site), 20, "the driver registers")
    devices = eventually(site.devices, 20, "devices are published")
    return next(each for each in devices if each["attributes"]["type"]["string"] == "gpu")


def _registered(site: Site) -> bool:
    return bool(site.kubelet.endpoints(builders.DRIVER))


def _request(kind: str) -> dict[str, Any]:
    return {"deviceClassName": f"{kind}.{builders.DRIVER}"}


def _result(device: str) -> dict[str, Any]:
    return {"request": "gpu", "driver": builders.DRIVER, "pool": "", "device": device}


def _consumed(device: dict[str, Any], *, compute: str = "1") -> dict[str, Any]:
    """What the scheduler adds for a shareable device; nothing for another."""
    if not device.get("allowMultipleAllocations"):
        return {}
    memory = device["capacity"]["memory"]["value"]
    return {
        "shareID": "00000001-0000-4000-a000-000000000001",
        "consumedCapacity": {"compute": compute, "memory": memory, "shares": "1"},
    }
