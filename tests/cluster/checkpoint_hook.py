"""The driver's checkpoint hook on a node: its operations, and its ways to be away."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver.adapters.checkpoint_client import call_hook
from dra_driver.errors import AdapterError
from tests.cluster import deployed
from tests.cluster.life_plugin import plugin_container, plugin_pods
from tests.cluster.life_processes import processes
from tests.cluster.life_site import Tenant
from tests.kube.client import Json
from tests.kube.cluster import Cluster
from tests.kube.criu import CONFIG
from tests.kube.process import wait_until
from tests.kube.tools import run

API_VERSION = "config.gpuslice.io/v1alpha1"
CHECKPOINT = "KIND_CHECKPOINT"
RESTORE = "KIND_RESTORE"
PROGRAM = Path("/opt/gpuslice/bin/gpuslice-hook")
"""The hook's program on the node."""

_CALL_S = 10.0
_FINAL = frozenset(("DONE", "EXPIRED", "FAILED_CLEAN", "FAILED_UNHEALTHY", "FAILED_KILLED"))
_NOWHERE: Json = {"gpuslice.test/nowhere": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """The hook of the node's plugin."""

    cluster: Cluster

    def operations(self, tenant: Tenant, kind: str = CHECKPOINT) -> list[dict[str, Any]]:
        """Give the operations on a pod's container, oldest first, in the JSON of the protocol."""
        return self.operations_on(tenant.container, kind)

    def operations_on(self, container: str, kind: str) -> list[dict[str, Any]]:
        """Give the operations on a container, oldest first."""
        socket = self.cluster.node_path("/run/gpuslice/checkpoint.sock")
        found = call_hook(socket, "ListOperations", {}, timeout_s=_CALL_S)["operations"]
        wanted = (kind, container.removeprefix("containerd://"))
        return [each for each in found if (each["kind"], each["target"]["containerId"]) == wanted]

    def all_ended(self, container: str, kind: str) -> list[str]:
        """Wait until no operation on a container is under way, and give their states."""

        def problem() -> str:
            try:
                found = self.operations_on(container, kind)
            except AdapterError as error:
                return str(error)
            open_now = [each for each in found if state_of(each) not in _FINAL]
            return str(open_now or "")

        wait_until(problem, waiting_for=f"operations on {container}", timeout_s=60.0)
        ended = self.operations_on(container, kind)
        assert [each["remainingSeconds"] for each in ended] == [0] * len(ended)
        return [state_of(each) for each in ended]

    def ended(self, tenant: Tenant, kind: str = CHECKPOINT) -> dict[str, Any]:
        """Wait until the only operation on a pod's container has ended, and give it."""

        def problem() -> str:
            try:
                states = [state_of(each) for each in self.operations(tenant, kind)]
            except AdapterError as error:
                # The plugin may just be starting again.
                return str(error)
            return "" if len(states) == 1 and states[0] in _FINAL else str(states)

        wait_until(problem, waiting_for=f"the operation on pod {tenant.name}", timeout_s=60.0)
        return self.operations(tenant, kind)[0]

    @contextmanager
    def away(self) -> Iterator[None]:
        """Have no plugin on the node; what it installed stays."""
        self._place(_NOWHERE)
        wait_until(
            lambda: str([pod["metadata"]["name"] for pod in plugin_pods(self.cluster)] or ""),
            waiting_for="the end of the plugin",
            timeout_s=60.0,
        )
        try:
            yield
        finally:
            self._place(dict.fromkeys(_NOWHERE))
            deployed.wait_deployed(self.cluster)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Let the plugin answer nobody."""
        pids = processes(self.cluster, plugin_container(self.cluster))
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def wait_installed(self) -> None:
        """Wait until CRIU's configuration names the program."""

        def problem() -> str:
            text = run(self.cluster.cell.inside(("cat", CONFIG)))
            return "" if "gpuslice-hook" in text else text or "empty"

        wait_until(problem, waiting_for=f"the program in {CONFIG}", timeout_s=60.0)

    def roll(self) -> None:
        """Begin to replace the plugin as an update does; returns at once."""
        namespace = f"--namespace={deployed.NAMESPACE}"
        self.cluster.kubectl("rollout", "restart", namespace, "daemonset/gpuslice-plugin")

    @contextmanager
    def beside(self, *lines: str) -> Iterator[None]:
        """Have further lines in CRIU's configuration, as another owner of it has."""
        before = run(self.cluster.cell.inside(("cat", CONFIG)))
        self._write(before + "".join(f"{line}\n" for line in lines))
        try:
            yield
        finally:
            self._write(before)

    def _write(self, text: str) -> None:
        run(self.cluster.cell.inside(("sh", "-c", 'cat >"$0"', CONFIG)), stdin=text)

    def _place(self, selector: Json) -> None:
        patch = {"spec": {"template": {"spec": {"nodeSelector": selector}}}}
        self.cluster.kubectl(
            *("patch", "daemonset/gpuslice-plugin", f"--namespace={deployed.NAMESPACE}"),
            *("--patch", json.dumps(patch)),
        )


def gpus(cluster: Cluster) -> list[str]:
    """Give the UUIDs of the node's GPUs."""
    return [
        str(deployed.attribute(device, "uuid"))
        for device in deployed.published(cluster)
        if deployed.attribute(device, "type") == "gpu"
    ]


def gpu_of(tenant: Tenant) -> str:
    """Give the UUID of the only GPU that a pod is told of."""
    variables = dict(each.split("=", 1) for each in tenant.environment)
    return variables["GPUSLICE_GPU_UUID"]


def state_of(operation: dict[str, Any]) -> str:
    return str(operation["state"]).removeprefix("STATE_")


def with_config(request: Json, *, gpu: str = "", **fields: str) -> Json:
    """Give a request of a whole GPU a configuration, and choose the GPU where a UUID is given."""
    changed = {**request, "config": {"apiVersion": API_VERSION, "kind": "GpuConfig", **fields}}
    if gpu:
        expression = f'device.attributes["{deployed.DRIVER}"].uuid == "{gpu}"'
        changed["selectors"] = [{"cel": {"expression": expression}}]
    return changed
