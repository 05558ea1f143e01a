"""The command `gpuslice checkpoint`: a checkpoint by the kubelet, asked for by a person.

The request goes through the API server to the kubelet; on the node, the hook does what belongs
before and after it. Where the driver is to own the transition of the GPU's state, the command calls
the node's checkpoint service before and after, by `gpuslice hook` in the plugin's pod.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from threading import Event
from typing import Any
from uuid import uuid4

from dra_driver.adapters.kube_caller import CallerApi, connect_caller
from dra_driver.app.archive_download import NewFile, download
from dra_driver.app.checkpoint_target import FoundContainer, find_container
from dra_driver.app.checkpoint_values import CheckpointReport, CheckpointWish
from dra_driver.app.node_plugins import NodePlugin, NodePlugins, Progress
from dra_driver.errors import AdapterError, FatalError, Forbidden, NotFound, SettingsError
from dra_driver.plan.kubelet_answers import RIGHTS, NotTaken, Taken, judge_answer
from dra_driver.plan.operation_choice import FINAL, checkpoint_operation, operations_of, word

_SETTLE_LOOKS = 20
_LOOK_EVERY_S = 1.0
_LEASE_MARGIN_S = 30


def checkpoint(wish: CheckpointWish, progress: Progress) -> CheckpointReport:
    """Take a checkpoint.

    Raises:
        SettingsError: something that was given is wrong.
        FatalError: there is no checkpoint, or it could not be fetched; the text says which.
    """
    if wish.driver_owned and wish.host_only:
        raise SettingsError(
            "--driver-owned and --host-only exclude each other: GPU state is taken along or not"
        )
    with ExitStack() as resources:
        # First, as it costs nothing where it fails.
        target = None
        if wish.output is not None:
            target = resources.enter_context(NewFile(wish.output))
        api = connect_caller(kubeconfig=wish.kubeconfig, context=wish.context)
        resources.callback(api.close)
        return _Checkpoint(api, wish, progress).take(target)


class _Checkpoint:
    def __init__(self, api: CallerApi, wish: CheckpointWish, progress: Progress) -> None:
        self._api = api
        self._wish = wish
        self._progress = progress
        self._plugins = NodePlugins(api, namespace=wish.driver_namespace)
        self._notes: list[str] = []

    def take(self, target: NewFile | None) -> CheckpointReport:
        found, begins = self._find(), self._wish.driver_owned or self._wish.host_only
        plugin = self._plugin(found, needed=target is not None or begins)
        if target is not None and plugin is not None:
            self._plugins.run(plugin, ("archive", "check"))
        operation_id = self._begin(found, plugin) if begins else ""
        archive = self._dump(found, plugin, operation_id)
        operation = self._operation(found, plugin, operation_id, archive)
        if target is not None and plugin is not None:
            self._fetch(plugin, archive, target)
        return CheckpointReport(
            found=found,
            archive=archive,
            file=None if target is None else target.path,
            operation=operation,
            failure=_failure(operation),
            notes=tuple(self._notes),
        )

    def _fetch(self, plugin: NodePlugin, archive: str, target: NewFile) -> None:
        try:
            download(self._plugins, plugin, archive, target, self._progress)
        except FatalError as error:
            raise FatalError(
                f"the checkpoint is {archive} on node {plugin.node}, and was not fetched: {error}"
            ) from error

    def _find(self) -> FoundContainer:
        wish = self._wish
        namespace = wish.namespace or self._api.namespace
        self._progress.step(f"looking for pod {namespace}/{wish.pod}")
        try:
            pod = self._api.pod(namespace, wish.pod)
        except NotFound as error:
            raise FatalError(f"there is no pod {namespace}/{wish.pod}: give --namespace") from error
        except Forbidden as error:
            raise FatalError(
                f"you may not look at pod {namespace}/{wish.pod}: {error}; the ClusterRole"
                f" gpuslice-checkpointer ({RIGHTS}) grants 'get pods'"
            ) from error
        except AdapterError as error:
            raise FatalError(str(error)) from error
        return find_container(pod, container=wish.container, timeout_s=wish.timeout_s)

    def _plugin(self, found: FoundContainer, *, needed: bool) -> NodePlugin | None:
        if not needed and not found.has_claims:
            return None
        try:
            return self._plugins.on(found.asked.node)
        except FatalError as error:
            if needed:
                raise
            self._notes.append(f"the operation on the node is not known: {error}")
            return None

    def _begin(self, found: FoundContainer, plugin: NodePlugin | None) -> str:
        """Begin the operation here, as the runtime's hook would not decide so by itself."""
        assert plugin is not None  # noqa: S101 - it is needed
        operation_id = f"cli-{uuid4().hex}"
        request = {
            **_request(found, operation_id),
            "leaseSeconds": found.asked.timeout_s + _LEASE_MARGIN_S,
        }
        try:
            self._ask_to_begin(plugin, request)
        except BaseException:
            # The node may be at it still, with the container's processes off their GPUs.
            with suppress(FatalError):
                self._plugins.hook(plugin, "Abort", {"operationId": operation_id})
            raise
        return operation_id

    def _ask_to_begin(self, plugin: NodePlugin, request: dict[str, Any]) -> None:
        if self._wish.host_only:
            self._progress.step("telling the driver that GPU state is not needed")
            asked: dict[str, Any] = {"acceptHostOnly": True}
        else:
            self._progress.step("letting the driver take the processes off their GPUs")
            asked = {"gpuOwner": "GPU_OWNER_DRIVER"}
        self._plugins.hook(plugin, "PreCheckpoint", {**request, **asked})

    def _dump(self, found: FoundContainer, plugin: NodePlugin | None, operation_id: str) -> str:
        asked = found.asked
        try:
            self._progress.step(f"checkpointing {asked} on node {asked.node}")
            answer = self._api.checkpoint(
                asked.node,
                namespace=asked.namespace,
                pod=asked.pod,
                container=asked.container,
                timeout_s=asked.timeout_s,
            )
            judged: Taken | NotTaken = judge_answer(asked, *answer)
        except AdapterError as error:
            judged = NotTaken(text=f"no checkpoint of {asked}: {error}", tried=True)
        except BaseException:
            self._end(plugin, operation_id, "OUTCOME_UNKNOWN", "the caller went away")
            raise
        if isinstance(judged, Taken):
            self._end(plugin, operation_id, "OUTCOME_SUCCEEDED", "")
            return judged.archive
        self._end(plugin, operation_id, "OUTCOME_FAILED", judged.text)
        more = self._why(found, plugin, operation_id) if judged.tried else ""
        raise FatalError(judged.text + more)

    def _end(
        self, plugin: NodePlugin | None, operation_id: str, outcome: str, message: str
    ) -> None:
        if not operation_id or plugin is None:
            return
        request = {"operationId": operation_id, "outcome": outcome, "message": message}
        try:
            self._plugins.hook(plugin, "PostCheckpoint", request)
        except FatalError as error:
            self._notes.append(f"the driver was not told the outcome ({error}): its lease ends it")

    def _why(self, found: FoundContainer, plugin: NodePlugin | None, operation_id: str) -> str:
        """What the node's driver says of a failure, as far as it can be asked."""
        if plugin is None or not found.has_claims:
            return ""
        try:
            if not operation_id:
                request = {**_request(found, f"cli-{uuid4().hex}"), "dryRun": True}
                self._plugins.hook(plugin, "PreCheckpoint", request)
            listed = self._plugins.hook(plugin, "ListOperations", {}).get("operations", [])
        except FatalError as error:
            return f"\nthe driver says: {error}"
        own = operations_of(listed, pod_uid=found.pod_uid, container=found.asked.container)
        if not own or own[-1]["state"] == "STATE_DONE":
            return ""
        return f"\nthe driver's last operation on it ended {_told(own[-1])}"

    def _operation(
        self, found: FoundContainer, plugin: NodePlugin | None, operation_id: str, archive: str
    ) -> dict[str, Any] | None:
        """The node's operation, once it has settled or for as long as one likes to wait."""
        if plugin is None or not found.has_claims:
            return None
        self._progress.step("waiting for the driver to find the container's GPU state good")
        latest: dict[str, Any] | None = None
        try:
            for _ in range(_SETTLE_LOOKS):
                listed = self._plugins.hook(plugin, "ListOperations", {}).get("operations", [])
                latest = _named(listed, operation_id) or _dict(
                    checkpoint_operation(
                        listed,
                        pod_uid=found.pod_uid,
                        container=found.asked.container,
                        archive=archive,
                    )
                )
                if latest is None or latest["state"] in FINAL:
                    break
                Event().wait(_LOOK_EVERY_S)
        except FatalError as error:
            self._notes.append(f"the operation on the node is not known: {error}")
        return latest


def _request(found: FoundContainer, operation_id: str) -> dict[str, Any]:
    target = {
        "podNamespace": found.asked.namespace,
        "podName": found.asked.pod,
        "podUid": found.pod_uid,
        "containerName": found.asked.container,
    }
    return {"operationId": operation_id, "target": target}


def _named(operations: list[dict[str, Any]], operation_id: str) -> dict[str, Any] | None:
    return next(
        (each for each in operations if operation_id and each["operationId"] == operation_id), None
    )


def _dict(operation: Any) -> dict[str, Any] | None:
    return None if operation is None else dict(operation)


def _told(operation: Any) -> str:
    message = operation.get("message")
    return f"as {word(operation['state'])}{f': {message}' if message else ''}"


def _failure(operation: dict[str, Any] | None) -> str:
    if operation is None or operation["state"] == "STATE_DONE":
        return ""
    if operation["state"] not in FINAL:
        return ""
    return f"the checkpoint is there, but its operation ended {_told(operation)}"
