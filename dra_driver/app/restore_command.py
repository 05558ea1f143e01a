"""The command `gpuslice restore`: from a checkpoint's archive to an image, a claim and a Pod.

The kubelet has no restore: a runtime restores where a Pod's image is a checkpoint. So what can be
done is to bring that image to where it is found, and to say which objects use it.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from dra_driver.adapters.checkpoint_archive import (
    ArchiveFacts,
    open_archive,
    read_facts,
    write_image,
)
from dra_driver.adapters.kube_caller import connect_caller
from dra_driver.app.archive_download import NewFile
from dra_driver.app.node_plugins import NodePlugin, NodePlugins, Progress, parse_object
from dra_driver.app.node_side import CONTAINERD_SOCKET, architecture, facts_of
from dra_driver.app.operations_command import OperationRow, find_operation
from dra_driver.errors import FatalError, SettingsError
from dra_driver.model.manifest import Manifest
from dra_driver.plan.manifest import read_manifest
from dra_driver.plan.operation_choice import checkpoint_operation, word
from dra_driver.plan.restore_objects import RestoreWish, restore_notes, restore_objects

_IMPORT_SILENCE_S = 3600.0
_IMAGE = re.compile(r"[a-z0-9][a-z0-9.-]*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+:\w[\w.-]{0,127}")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)")
_NAME_MAX = 63
_NOTHING_TAKEN = frozenset(("STATE_FAILED_CLEAN", "STATE_EXPIRED"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """What a person asks for.

    Attributes:
        archive: a file of this machine, or with `load` of the node.
        operation: that took the checkpoint; empty: it is looked for on `node`, if that is given.
        node: whose archive it is.
        load: the image goes into the containerd of `node`.
        output: where the image goes on this machine.
        image, name, container: empty: made of what the archive says.
        architecture: of the nodes, as Go names it; empty: this machine's.
        ctr, containerd_socket: of the node.
    """

    archive: str
    operation: str = ""
    node: str = ""
    load: bool = False
    output: Path | None = None
    image: str = ""
    name: str = ""
    namespace: str = ""
    container: str = ""
    architecture: str = ""
    ctr: str = "ctr"
    containerd_socket: str = CONTAINERD_SOCKET
    driver: str = "gpuslice.io"
    kubeconfig: Path | None = None
    context: str = ""
    driver_namespace: str = "gpuslice"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """An image that restores a checkpoint.

    Attributes:
        image: its name.
        file: of this machine; None: it is in the node's containerd.
        objects: to be created, in this order.
        notes: for people.
    """

    image: str
    file: Path | None
    objects: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    def to_yaml(self) -> str:
        """The objects, for `kubectl apply -f -`."""
        return str(yaml.safe_dump_all(self.objects, sort_keys=False))

    def to_json(self) -> dict[str, Any]:
        return {
            "image": self.image,
            "file": None if self.file is None else str(self.file),
            "objects": list(self.objects),
            "notes": list(self.notes),
        }


def restore(request: RestoreRequest, progress: Progress) -> RestoreReport:
    """Make the image, bring it where it was asked for, and give the objects that use it.

    Raises:
        SettingsError: something that was given is wrong.
        AdapterError, FatalError: the archive or a node did not do its part.
    """
    check_request(request)
    return _on_node(request, progress) if request.load else _here(request, progress)


def check_request(request: RestoreRequest) -> None:
    """Raises SettingsError: what was given does not fit together."""
    if request.load == (request.output is not None):
        raise SettingsError(
            "give either --import, to load the image into a node's containerd, or --output, to"
            " write it to a file of this machine"
        )
    if request.load and not request.node:
        raise SettingsError("--import needs --node: the node that the archive is on")
    if request.image and not _IMAGE.fullmatch(request.image):
        raise SettingsError(
            f"--image is {request.image!r}: give a name with registry and tag, such as"
            " registry.example.com/checkpoints/trainer:1"
        )
    for flag, value in (("--name", request.name), ("--container", request.container)):
        if value and not (_NAME.fullmatch(value) and len(value) <= _NAME_MAX):
            raise SettingsError(
                f"{flag} is {value!r}: give at most {_NAME_MAX} lower-case letters, digits and '-'"
            )


def _here(request: RestoreRequest, progress: Progress) -> RestoreReport:
    assert request.output is not None  # noqa: S101 - checked
    with closing(open_archive(Path(request.archive))) as archive:
        full = _completed(request, read_facts(archive))
        row = _looked_up(full) if full.operation else None
        _check_namespace(full, row)
        progress.step(f"writing the image of {archive.name} to {request.output}")
        with NewFile(request.output) as target:
            try:
                write_image(
                    archive,
                    target.file,
                    name=full.image,
                    container=full.container,
                    architecture=full.architecture or architecture(),
                )
            except OSError as error:
                raise FatalError(f"cannot write {request.output}: {error.strerror}") from error
            target.finish()
    push = (
        f"bring the image to the nodes by a registry: skopeo copy oci-archive:{request.output}"
        f" docker://{full.image}"
    )
    return _report(full, row, file=request.output, notes=(push,))


def _on_node(request: RestoreRequest, progress: Progress) -> RestoreReport:
    api = connect_caller(kubeconfig=request.kubeconfig, context=request.context)
    with closing(api):
        plugins = NodePlugins(api, namespace=request.driver_namespace)
        plugin = plugins.on(request.node)
        progress.step(f"looking at {request.archive} on node {request.node}")
        found = plugins.run(plugin, ("archive", "facts", request.archive))
        facts = facts_of(parse_object(found.output))
        full = _completed(request, facts)
        row = _operation(plugins, plugin, full, facts)
        _check_namespace(full, row)
        progress.step(f"importing {facts.size_bytes} bytes into containerd of node {request.node}")
        options = ("--image", full.image, "--container", full.container, "--ctr", full.ctr)
        socket = ("--containerd-socket", full.containerd_socket)
        command = ("archive", "import", request.archive, *options, *socket)
        plugins.run(plugin, command, silence_s=_IMPORT_SILENCE_S)
    return _report(full, row, file=None, notes=())


def _looked_up(request: RestoreRequest) -> OperationRow:
    api = connect_caller(kubeconfig=request.kubeconfig, context=request.context)
    with closing(api):
        plugins = NodePlugins(api, namespace=request.driver_namespace)
        return find_operation(plugins, request.operation, node=request.node)


def _operation(
    plugins: NodePlugins, plugin: NodePlugin, request: RestoreRequest, facts: ArchiveFacts
) -> OperationRow | None:
    if request.operation:
        return find_operation(plugins, request.operation, node=request.node)
    try:
        listed = plugins.hook(plugin, "ListOperations", {}).get("operations", [])
    except FatalError:
        # There is no hook on this node.
        return None
    found = checkpoint_operation(
        listed, pod_uid=facts.pod_uid, container=request.container, archive=request.archive
    )
    return None if found is None else OperationRow(node=plugin.node, operation=found)


def _check_namespace(request: RestoreRequest, row: OperationRow | None) -> None:
    """The node's driver tells claims of one namespace nothing of another's checkpoints."""
    claims = () if row is None else row.operation.get("claims") or ()
    of = sorted({str(each["namespace"]) for each in claims})
    if row is not None and of and request.namespace not in of:
        raise SettingsError(
            f"--namespace is {request.namespace!r}: operation {row.operation['operationId']} is of"
            f" claims in {', '.join(of)}, and claims elsewhere cannot name it; give that namespace"
        )


def _completed(request: RestoreRequest, facts: ArchiveFacts) -> RestoreRequest:
    """Names that were not given, of what the archive says."""
    container = request.container or facts.container
    if not _NAME.fullmatch(container):
        raise SettingsError(
            f"--container is not set, and {request.archive} names none that a Pod can have"
            f" ({container!r}): give the container's name"
        )
    pod = facts.pod if _NAME.fullmatch(facts.pod) else container
    namespace = facts.namespace or "default"
    time = _TIME.search(request.archive)
    tag = "".join(time.groups()) if time is not None else "1"
    return replace(
        request,
        container=container,
        name=request.name or f"{pod[: _NAME_MAX - len('-restored')]}-restored",
        namespace=request.namespace or namespace,
        image=request.image or f"localhost/checkpoint/{namespace}/{pod}/{container}:{tag}",
    )


def _report(
    request: RestoreRequest, row: OperationRow | None, *, file: Path | None, notes: tuple[str, ...]
) -> RestoreReport:
    wish = RestoreWish(
        name=request.name,
        namespace=request.namespace,
        container=request.container,
        image=request.image,
        node=request.node if request.load else None,
        operation_id="" if row is None else str(row.operation["operationId"]),
        manifest=None if row is None else _manifest(row),
        driver=request.driver,
    )
    return RestoreReport(
        image=request.image,
        file=file,
        objects=restore_objects(wish),
        notes=(*notes, *_doubts(row), *restore_notes(wish)),
    )


def _doubts(row: OperationRow | None) -> tuple[str, ...]:
    """Why the node will not restore from an operation, as far as its state tells."""
    if row is None or row.operation["state"] not in _NOTHING_TAKEN:
        return ()
    told = f"{word(row.operation['state'])}: {row.operation['message']}"
    text = (
        f"operation {row.operation['operationId']} ended as {told}; so a claim that names it is"
        " refused. If the kubelet called the checkpoint a success, take restoreFrom out of the"
        " claim: whether it fits is seen when it runs"
    )
    return (text,)


def _manifest(row: OperationRow) -> Manifest | None:
    text = row.operation.get("manifestJson")
    try:
        return read_manifest(json.loads(text)) if text else None
    except (ValueError, KeyError, TypeError) as error:
        raise FatalError(
            f"the manifest of operation {row.operation.get('operationId')} on node {row.node} is"
            f" not understood ({error}): use the gpuslice of the plugin's release"
        ) from error
