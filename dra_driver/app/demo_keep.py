"""The demo's node left running, with what there is to try on it."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event

from dra_driver.app.demo_cluster import DemoCluster
from dra_driver.app.demo_node import DemoNode
from dra_driver.app.demo_story import MANIFESTS
from dra_driver.app.demo_values import NAMESPACE, NODE, PodOutcome
from dra_driver.app.demo_view import View

_FOLLOW_S = 0.5


def keep(node: DemoNode, cluster: DemoCluster, view: View, *, pod: str) -> None:
    """Follow pods that are created and deleted from outside, until Ctrl-C."""
    view.chapter("It is yours until Ctrl-C")
    view.text("What there is to look at, in another terminal:")
    view.code("\n".join(_commands(node, cluster, pod)), "bash")
    view.text(f"The plugin's log: {node.log}")
    never = Event()
    while not node.interruption.take():
        never.wait(_FOLLOW_S)
        for outcome in cluster.follow():
            view.text(_line(outcome))


def _commands(node: DemoNode, cluster: DemoCluster, pod: str) -> list[str]:
    gpuslice = f"{Path(sys.executable).parent}/gpuslice"
    simulate = f"--simulate {node.simulation} --node-name {NODE}"
    (ref,) = cluster.refs(pod)
    claim = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims/{ref.name}"
    last = node.devices()[0]["attributes"]["uuid"]["string"]
    return [
        f"export KUBECONFIG={node.kubeconfig}",
        "kubectl get resourceslices,resourceclaims,pods",
        f"kubectl delete pod {pod}     # its claim is unprepared",
        f"kubectl create --validate=false -f {MANIFESTS}/examples/whole-node.yaml     # it waits",
        "",
        f"{gpuslice} inventory {simulate}",
        f"curl -s {node.api.url}{claim} | {gpuslice} explain --claim - {simulate}",
        f"curl -s http://{node.endpoint()}/metrics | grep ^gpuslice",
        "",
        "# a GPU falls off the bus: its device is tainted",
        f"echo 'events: [{{gpu: {last}, xid: 79}}]' >> {node.simulation}",
    ]


def _line(outcome: PodOutcome) -> str:
    if outcome.running:
        return f"{outcome.name}: {outcome.phase}"
    return f"{outcome.name}: {outcome.phase}: {outcome.reason}: {outcome.message}"
