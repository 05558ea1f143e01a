"""The demo's last chapters: one claim looked at closely, a crash, and cleaning up."""

from __future__ import annotations

import json
from time import monotonic
from typing import Any

import yaml

from dra_driver.app.demo_cluster import DemoCluster
from dra_driver.app.demo_node import DemoNode
from dra_driver.app.demo_values import DemoError, Json, gpu_usage
from dra_driver.app.demo_view import View
from dra_driver.model.record import PreparedDevice

Answers = dict[str, tuple[PreparedDevice, ...]]


class Ending:
    """Continues a Story."""

    def __init__(self, node: DemoNode, cluster: DemoCluster, view: View) -> None:
        self._node = node
        self._cluster = cluster
        self._view = view
        self.result: dict[str, Any] = {}

    def show_claim(self, pod: str) -> None:
        """What a container of this pod gets, and what holds it to that."""
        self._view.chapter(f"What {pod} gets")
        (ref,) = self._cluster.refs(pod)
        (cdi_id,) = self._node.kubelet.cdi_ids(ref.uid)
        name, spec = self._spec(cdi_id)
        self._view.text(
            f"The container runtime is told one name, and finds what to do in the CDI spec {name}"
            " (shown as YAML, to be short):"
        )
        self._view.code(yaml.safe_dump(spec, sort_keys=True, width=200), "yaml")
        shares = [share for share in self._node.shares() if ref.uid in share["id"]]
        self._view.text("What the GPU's MPS server would hold it to, if the GPU were real:")
        self._view.table(
            ("compute", "memory", "sharing", "quality of service"), list(map(_limits_row, shares))
        )
        self.result["claim"] = {"cdiDevice": cdi_id, "spec": spec, "limits": shares}

    def crash(self, witness: str) -> None:
        """Kill the plugin with SIGKILL, lose a CDI spec, and let everything come back."""
        self._view.chapter("kill -9")
        answers, specs, journal = self._answers(), self._node.specs(), self._node.journal()
        (ref,) = self._cluster.refs(witness)
        lost, _ = self._spec(self._node.kubelet.cdi_ids(ref.uid)[0])
        self._node.kill_plugin()
        (self._node.cdi / lost).unlink()
        pid, back_s = self._start_again(specs)
        self._restart_kubelet()
        self._cluster.prepare_again()
        same = {
            "answers": self._answers() == answers,
            "specs": self._node.specs() == specs,
            "journal": self._node.journal() == journal,
        }
        if different := [name for name, equal in same.items() if not equal]:
            raise DemoError(f"after the crash these are not as before: {', '.join(different)}")
        self._view.text(
            f"The plugin was killed while {len(journal)} claims were prepared, and the CDI spec of"
            f" {witness} was deleted behind its back. The next process ({pid}) was registered, and"
            f" all {len(specs)} CDI specs were in place, byte for byte, after {back_s:.1f} s."
        )
        self._view.text(
            "Then the kubelet restarted too. It deleted the node's ResourceSlices, which the plugin"
            f" published again, and asked for every claim once more: all {len(answers)} answers are"
            " the same as before."
        )
        self.result["crash"] = {
            "claims": len(answers),
            "seconds": round(back_s, 3),
            "same": same,
        }

    def _start_again(self, specs: dict[str, bytes]) -> tuple[int, float]:
        """Start the plugin; gives its process id, and the seconds until all is as it was."""
        tries, start_s = len(self._node.kubelet.tries()), monotonic()
        pid = self._node.start_plugin()
        self._node.wait_for(
            lambda: len(self._node.kubelet.tries()) > tries and self._node.registered(),
            "the kubelet registered it again",
        )
        self._node.wait_for(lambda: self._node.specs() == specs, "the CDI specs were complete")
        return pid, monotonic() - start_s

    def _restart_kubelet(self) -> None:
        """Restart it, and wait until it has deleted the slices and others stand in their place."""
        before = self._slices()
        self._node.kubelet.restart()
        self._node.wait_for(self._node.registered, "the restarted kubelet registered it")
        self._node.wait_for(
            lambda: self._slices() and not self._slices() & before, "it published again"
        )

    def _slices(self) -> set[str]:
        return {each["metadata"]["uid"] for each in self._node.slices()}

    def clean_up(self) -> None:
        """Delete all pods and stop the plugin; nothing may be left."""
        self._view.chapter("Clean-up")
        pods = [outcome.name for outcome in self._cluster.outcomes()]
        for name in pods:
            self._cluster.delete(name)
        usage = gpu_usage(self._node.slices(), self._cluster.claims())
        left = {
            "claims": len(self._cluster.claims()),
            "CDI specs": len(self._node.specs()),
            "journal entries": len(self._node.journal()),
            "shares": len(self._node.shares()),
            "GPUs in use": sum(bool(gpu.tenants) for gpu in usage),
        }
        status = self._node.stop_plugin()
        left["sockets"] = len(self._node.sockets())
        remaining = {name: count for name, count in left.items() if count}
        if remaining or status:
            raise DemoError(f"after clean-up there are still {remaining}; exit status {status}")
        self._view.text(
            f"{len(pods)} pods were deleted and their claims unprepared. Left: "
            f"{', '.join(f'{count} {name}' for name, count in left.items())}. The plugin ended with"
            f" status {status}."
        )
        self.result["cleanUp"] = {"pods": len(pods), "left": left, "pluginStatus": status}

    def _answers(self) -> Answers:
        refs = [ref for each in self._cluster.outcomes() for ref in self._cluster.refs(each.name)]
        return {ref.uid: self._node.kubelet.devices(ref.uid) for ref in refs}

    def _spec(self, cdi_id: str) -> tuple[str, Json]:
        """The spec that a runtime would find for a CDI id, with the name of its file."""
        kind, _, device = cdi_id.partition("=")
        for name, text in self._node.specs().items():
            spec = json.loads(text)
            if spec["kind"] == kind and any(each["name"] == device for each in spec["devices"]):
                return name, spec
        raise DemoError(f"no CDI spec in {self._node.cdi} has the device {cdi_id}")


def _limits_row(share: Json) -> tuple[object, ...]:
    return (
        f"{share['computePercent']} %",
        f"{share['memoryMib']:,} MiB",
        share["sharing"],
        share["qos"],
    )
