"""What commands of a person run on a node, in the plugin's pod: `gpuslice hook` and `archive`."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from dra_driver.adapters.checkpoint_archive import (
    ArchiveFacts,
    copy_archive,
    open_archive,
    read_facts,
    write_image,
)
from dra_driver.adapters.process_feed import feed_program
from dra_driver.errors import AdapterError, SettingsError
from dra_driver.settings import Settings

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
GO_NAMES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}
"""Architectures as Go names them, by the kernel's names."""

_CALL_S = 60.0
_IMPORT_S = 3600.0
HOST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where services of the host, such as container runtimes, look for programs."""


def hook_socket(settings: Settings) -> Path:
    """Where the node's checkpoint service is."""
    return Path(settings.checkpoint_socket or settings.run_dir / "checkpoint.sock")


def hook_call(settings: Settings, method: str, request: str) -> dict[str, Any]:
    """Call the checkpoint service of this node.

    Raises:
        SettingsError: the request is no JSON object.
        AdapterError: it was refused, or nobody answers.
    """
    from dra_driver.adapters.checkpoint_client import call_hook  # noqa: PLC0415 - imports gRPC

    try:
        body = json.loads(request)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"REQUEST is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise SettingsError('REQUEST is no JSON object: give such as {"operationId": "a"}')
    return call_hook(hook_socket(settings), method, body, timeout_s=_CALL_S)


def check_archives(settings: Settings) -> None:
    """See whether the kubelet's archives can be read here; raises AdapterError."""
    folder = settings.checkpoints_dir
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        raise AdapterError(
            f"archives cannot be read: {folder}: {error.strerror}; add the component"
            " checkpoint-archives to the driver's manifests"
        ) from error


def archive_facts(settings: Settings, archive: str) -> dict[str, Any]:
    """Look into an archive of this node; raises AdapterError."""
    with closing(open_archive(Path(archive), folder=settings.checkpoints_dir)) as file:
        return facts_json(read_facts(file))


def send_archive(settings: Settings, archive: str, output: IO[bytes]) -> str:
    """Write an archive of this node to `output`, and give its SHA-256; raises AdapterError."""
    with closing(open_archive(Path(archive), folder=settings.checkpoints_dir)) as file:
        return copy_archive(file, output)


def import_archive(
    settings: Settings, archive: str, *, image: str, container: str, ctr: str, socket: str
) -> dict[str, Any]:
    """Load the image that restores an archive of this node into its containerd.

    The host's own `ctr` does it, seen at --host-root: so it fits the containerd there.

    Raises:
        AdapterError: the archive, `ctr` or containerd is not there, or it refused.
    """
    with closing(open_archive(Path(archive), folder=settings.checkpoints_dir)) as file:
        found = read_facts(file)
        name = container or found.container

        def feed(target: IO[bytes]) -> None:
            write_image(file, target, name=image, container=name, architecture=architecture())

        words = (ctr, "--address", socket, "--namespace", "k8s.io", "images", "import", "-")
        ended = feed_program(
            host_command(settings.host_root, words),
            feed,
            name="ctr",
            environment={"PATH": HOST_PATH},
            timeout_s=_IMPORT_S,
        )
    if ended.status != 0:
        said = " ".join((ended.errors or ended.output).split())[:500]
        raise AdapterError(
            f"ctr did not import the image (status {ended.status}): {said}; give --ctr and"
            " --containerd-socket what the host has"
        )
    return {**facts_json(found), "image": image, "container": name}


def host_command(host_root: Path, words: tuple[str, ...]) -> tuple[str, ...]:
    """Let a program of the host run with the host's files."""
    return words if host_root == Path("/") else ("chroot", str(host_root), *words)


def architecture() -> str:
    machine = platform.machine()
    return GO_NAMES.get(machine, machine)


def facts_json(facts: ArchiveFacts) -> dict[str, Any]:
    return {
        "sizeBytes": facts.size_bytes,
        "container": facts.container,
        "namespace": facts.namespace,
        "pod": facts.pod,
        "podUid": facts.pod_uid,
        "baseImage": facts.image,
    }


def facts_of(body: Mapping[str, Any]) -> ArchiveFacts:
    """Read what `facts_json` of this or another release gave."""
    return ArchiveFacts(
        size_bytes=int(body["sizeBytes"]),
        container=str(body.get("container", "")),
        namespace=str(body.get("namespace", "")),
        pod=str(body.get("pod", "")),
        pod_uid=str(body.get("podUid", "")),
        image=str(body.get("baseImage", "")),
    )
