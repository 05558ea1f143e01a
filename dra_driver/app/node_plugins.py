"""The plugins of a cluster as a person reaches them: by commands in their pods."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dra_driver.adapters.kube_caller import CallerApi
from dra_driver.adapters.kube_exec import ExecEnd, PodAddress
from dra_driver.errors import AdapterError, FatalError, Forbidden
from dra_driver.plan.kubelet_answers import RIGHTS

LABELS = "app.kubernetes.io/name=gpuslice,app.kubernetes.io/component=plugin"
_CONTAINER = "plugin"
_CALL_S = 60.0


class Progress(Protocol):
    """Who watches a command."""

    def step(self, text: str) -> None:
        """What is done from now on."""
        ...

    def amount(self, done_bytes: int, total_bytes: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlugin:
    """A plugin's pod, and its node."""

    node: str
    pod: PodAddress


class NodePlugins:
    """Finds plugins and runs `gpuslice` in their pods.

    Args:
        api: with the caller's rights.
        namespace: of the driver.
    """

    def __init__(self, api: CallerApi, *, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def on(self, node: str) -> NodePlugin:
        """The plugin of a node.

        Raises:
            FatalError: there is none that runs, or the caller may not look.
        """
        found = self._list(node)
        if not found:
            raise FatalError(
                f"no plugin's pod runs on node {node} in namespace {self._namespace}; see"
                f" kubectl get pods -n {self._namespace} -o wide, or give --driver-namespace"
            )
        return found[-1]

    def all(self) -> tuple[NodePlugin, ...]:
        """One for each node, by node.

        Raises:
            FatalError: there is none, or the caller may not look.
        """
        found = {each.node: each for each in self._list("")}
        if not found:
            raise FatalError(
                f"no plugin's pod runs in namespace {self._namespace}: give --driver-namespace"
            )
        return tuple(found[node] for node in sorted(found))

    def hook(self, plugin: NodePlugin, method: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Call the checkpoint service of a node.

        Raises:
            FatalError: it refused, or could not be called; the text says which.
        """
        text = json.dumps(dict(request), sort_keys=True)
        return parse_object(self.run(plugin, ("hook", method, text)).output)

    def run(
        self,
        plugin: NodePlugin,
        arguments: Sequence[str],
        *,
        sink: Callable[[bytes], None] | None = None,
        silence_s: float = _CALL_S,
    ) -> ExecEnd:
        """Run one of this program's commands in a plugin's pod.

        Args:
            plugin: whose pod.
            arguments: of the program.
            sink: gets what it prints, piece by piece.
            silence_s: how long it may print nothing.

        Raises:
            FatalError: it failed, with what it said; or it could not be run.
        """
        ended = self._exec(plugin, ("gpuslice", *arguments), sink=sink, silence_s=silence_s)
        if ended.status != 0:
            said = " ".join(
                line.removeprefix("gpuslice: ") for line in ended.errors.strip().splitlines()
            )
            raise FatalError(f"on node {plugin.node}: {said or f'exit status {ended.status}'}")
        return ended

    def _exec(
        self,
        plugin: NodePlugin,
        command: Sequence[str],
        *,
        sink: Callable[[bytes], None] | None,
        silence_s: float,
    ) -> ExecEnd:
        try:
            return self._api.exec.run(plugin.pod, command, sink=sink, silence_s=silence_s)
        except Forbidden as error:
            raise FatalError(
                f"you may not run commands in the plugin's pod: {error}; an administrator grants"
                f" 'create pods/exec' and 'get pods/exec' in namespace {self._namespace} by the"
                f" Role gpuslice-plugin-exec ({RIGHTS}), which is as good as root on the nodes"
            ) from error
        except AdapterError as error:
            raise FatalError(f"node {plugin.node} was not asked: {error}") from error

    def _list(self, node: str) -> list[NodePlugin]:
        """Those that run; of a node the best one last: ready, and new."""
        try:
            pods = self._api.pods(self._namespace, labels=LABELS, node=node)
        except Forbidden as error:
            raise FatalError(
                f"you may not look for the plugin's pods: {error}; an administrator grants 'list"
                f" pods' in namespace {self._namespace} by the Role gpuslice-plugin-exec ({RIGHTS})"
            ) from error
        except AdapterError as error:
            raise FatalError(str(error)) from error
        return [
            NodePlugin(
                node=each["spec"]["nodeName"],
                pod=PodAddress(
                    namespace=self._namespace, name=each["metadata"]["name"], container=_CONTAINER
                ),
            )
            for each in sorted(filter(_runs, pods), key=_rank)
        ]


def parse_object(output: bytes) -> dict[str, Any]:
    """Read what a command of ours printed.

    Raises:
        FatalError: it is no JSON object.
    """
    try:
        answer = json.loads(output)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise FatalError(f"the plugin's command answered {output[:200]!r}; is it another release?")
    return answer


def _runs(pod: Mapping[str, Any]) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Running" and "deletionTimestamp" not in pod["metadata"]


def _rank(pod: Mapping[str, Any]) -> tuple[bool, str]:
    # One that is not ready may still serve what is asked here.
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return ready, str(pod["metadata"]["creationTimestamp"])
