"""Options of the commands about checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer


def _option(text: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, metavar=metavar, help=text)


def _argument(metavar: str, text: str) -> Any:
    return typer.Argument(metavar=metavar, help=text)


_Container = Annotated[
    str, _option("Default: the pod's only one.", "-c", "--container", metavar="NAME")
]
_Ctr = Annotated[str, _option("Program ctr of the node.", metavar="FILE")]
_ContainerdSocket = Annotated[str, _option("Of the node.", metavar="SOCKET")]
_CONTAINERD_SOCKET = "/run/containerd/containerd.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerOptions:
    """Who asks which cluster."""

    kubeconfig: Annotated[str, _option("Default: as kubectl finds it.", metavar="FILE")] = ""
    context: Annotated[str, _option("Of the kubeconfig.", metavar="NAME")] = ""
    driver_namespace: Annotated[str, _option("Of the driver's pods.", metavar="NAME")] = "gpuslice"
    as_json: Annotated[bool, _option("Print JSON, for scripts.", "--json")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOptions(CallerOptions):
    pod: Annotated[str, _argument("POD", "Whose container is checkpointed.")]
    namespace: Annotated[
        str, _option("Default: the context's.", "-n", "--namespace", metavar="NAME")
    ] = ""
    container: _Container = ""
    output: Annotated[
        str, _option("Fetch the archive to a new file, too.", "-o", "--output", metavar="FILE")
    ] = ""
    timeout: Annotated[int, _option("How long the runtime may take.", metavar="SECONDS")] = 60
    driver_owned: Annotated[
        bool,
        _option(
            "The driver takes the processes off their GPUs, not CRIU's plugin, so that they can go "
            "on on others.",
            "--driver-owned",
        ),
    ] = False
    host_only: Annotated[
        bool,
        _option(
            "Accept a checkpoint without what is on the GPUs, for shares and programs that can do "
            "without.",
            "--host-only",
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions(CallerOptions):
    archive: Annotated[
        str, _argument("ARCHIVE", "A checkpoint's: a file here, or with --import of the node.")
    ]
    load: Annotated[bool, _option("Load the image into the containerd of --node.", "--import")] = (
        False
    )
    output: Annotated[
        str, _option("Write the image to a new file here.", "-o", "--output", metavar="FILE")
    ] = ""
    node: Annotated[str, _option("Whose archive it is.", metavar="NAME")] = ""
    operation: Annotated[
        str,
        _option(
            "The one that took the checkpoint. Default: with --import, found by the archive's pod "
            "and time.",
            metavar="ID",
        ),
    ] = ""
    image: Annotated[str, _option("Of the image, with its tag.", metavar="NAME")] = ""
    name: Annotated[str, _option("Of the Pod to print.", metavar="NAME")] = ""
    namespace: Annotated[
        str, _option("Of the Pod to print.", "-n", "--namespace", metavar="NAME")
    ] = ""
    container: Annotated[
        str, _option("Default: as in the archive.", "-c", "--container", metavar="NAME")
    ] = ""
    architecture: Annotated[
        str, _option("Of the nodes, such as amd64. Default: as here.", metavar="ARCH")
    ] = ""
    ctr: _Ctr = "ctr"
    containerd_socket: _ContainerdSocket = _CONTAINERD_SOCKET
    driver_name: Annotated[str, _option("Of the DRA driver.", metavar="NAME")] = "gpuslice.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsOptions(CallerOptions):
    namespace: Annotated[
        str, _option("Of pods. Default: all.", "-n", "--namespace", metavar="NAME")
    ] = ""
    node: Annotated[str, _option("Default: all.", metavar="NAME")] = ""
    ended_well: Annotated[bool, _option("Those that ended well, too.", "--all")] = False
    local: Annotated[
        bool, _option("Ask the socket of this node, as in the plugin's pod.", "--local")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    method: Annotated[str, _argument("METHOD", "Such as GetOperation.")]
    request: Annotated[str, _argument("REQUEST", 'As JSON: {"operationId": "a"}')] = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    action: Annotated[str, _argument("ACTION", "check, facts, send or import")]
    path: Annotated[str, _argument("PATH", "In the kubelet's folder of checkpoints.")] = ""
    image: Annotated[str, _option("To import.", metavar="NAME")] = ""
    container: _Container = ""
    ctr: _Ctr = "ctr"
    containerd_socket: _ContainerdSocket = _CONTAINERD_SOCKET
