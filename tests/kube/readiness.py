"""Waiting for the parts of a cluster, with the end of the right log where one does not come up."""

import ssl
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

from tests.kube.cell import Addresses
from tests.kube.client import ApiError, Client, Json
from tests.kube.daemons import Daemons
from tests.kube.process import NotReadyError, wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Each method returns when the part named by it serves, and raises NotReadyError otherwise."""

    daemons: Daemons
    addresses: Addresses
    timeout_s: float = 90.0

    def wait_for_etcd(self) -> None:
        self._wait_for_health("etcd", f"http://{self.addresses.node}:2379/health")

    def wait_for_api(self, admin: Callable[[], Client]) -> None:
        """Wait for the API server; a client of it can be made once it has its certificate."""

        def problem() -> str:
            admin().text("/readyz")
            found = {item["metadata"]["name"] for item in admin().list("/api/v1/namespaces")}
            return ", ".join(sorted({"default", "kube-system"} - found))

        self.wait("kube-apiserver", problem, waiting_for="/readyz and the system's namespaces")

    def wait_for_controllers(self) -> None:
        for name, port in (("kube-controller-manager", 10257), ("kube-scheduler", 10259)):
            self._wait_for_health(name, f"https://{self.addresses.node}:{port}/healthz")

    def wait_for_node(self, admin: Client, name: str) -> None:
        """Wait until the kubelet serves, its node takes pods and there is an identity for them."""
        self._wait_for_health("kubelet", f"http://{self.addresses.node}:10248/healthz")
        self.wait(
            "kubelet",
            lambda: _node_problem(admin.get(f"/api/v1/nodes/{name}")),
            waiting_for=f"node {name} to be ready",
        )
        self.wait(
            "kubelet",
            lambda: _unknown_pods(admin, name),
            waiting_for="the kubelet to know its pods",
        )
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        self.wait(
            "kube-controller-manager",
            lambda: "" if admin.get(path) else "none",
            waiting_for="the default ServiceAccount",
        )

    def wait(self, name: str, problem: Callable[[], str], *, waiting_for: str) -> None:
        """Poll until ``problem`` answers with an empty text, as long as the process ``name`` runs.

        Errors of connections and of the API server count as problems.
        """

        def current() -> str:
            if self.daemons.pid(name) is None:
                raise NotReadyError(f"{name} ended before {waiting_for}")
            try:
                return problem()
            except (OSError, ApiError) as error:
                return str(error)

        try:
            wait_until(current, waiting_for=waiting_for, timeout_s=self.timeout_s)
        except NotReadyError as error:
            raise NotReadyError(f"{error}. {self.daemons.log_tail(name)}") from None

    def _wait_for_health(self, name: str, url: str) -> None:
        # Each makes itself a certificate that nobody knows.
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        )

        def problem() -> str:
            with opener.open(url, timeout=2.0):
                return ""

        self.wait(name, problem, waiting_for=url)


def _node_problem(node: Json) -> str:
    if taints := node["spec"].get("taints"):
        return f"taints {', '.join(sorted(taint['key'] for taint in taints))}"
    for condition in node["status"].get("conditions", ()):
        if condition["type"] == "Ready":
            return "" if condition["status"] == "True" else str(condition["message"])
    return "no condition Ready"


def _unknown_pods(admin: Client, node: str) -> str:
    """Name what is bound to a node but not known there: after a start, the kubelet serves first."""
    bound = admin.list("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
    known = admin.get(f"/api/v1/nodes/{node}/proxy/pods")["items"] or ()
    uids = {pod["metadata"]["uid"] for pod in known}
    names = [pod["metadata"]["name"] for pod in bound if pod["metadata"]["uid"] not in uids]
    return f"unknown: {', '.join(names)}" if names else ""
