"""Archives that the kubelet's checkpoints are kept in, and the images that restore them.

An archive is a tar file of CRIU's images and of the runtime's notes. A runtime restores a container
from an OCI image whose only layer is the archive and whose manifest names the container by
annotation. Sources: containerd's internal/cri/server/container_checkpoint_linux.go, and OCI's
image layout.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dra_driver.errors import AdapterError

CONTAINER_MARK = "org.criu.checkpoint.container.name"
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_FILE_NAME = re.compile(r"checkpoint-[A-Za-z0-9._:+-]+\.tar")
_MEDIA = "application/vnd.oci.image"
_CHUNK_BYTES = 1 << 20
_NOTE_BYTES = 4 << 20
_CRI = "io.kubernetes.cri."
_NAME_PARTS = 5

Told = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFacts:
    """What an archive says of itself; empty where it does not."""

    size_bytes: int
    container: str = ""
    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    image: str = ""


def open_archive(path: Path, *, folder: Path | None = None) -> io.BufferedReader:
    """Open an archive.

    Args:
        path: its file.
        folder: the one that it has to lie in, under a name that the kubelet gives; None: anywhere.

    Raises:
        AdapterError: it lies elsewhere, is no regular file, or cannot be opened.
    """
    if folder is not None and (path.parent != folder or not _FILE_NAME.fullmatch(path.name)):
        raise AdapterError(
            f"{path} is no checkpoint of the kubelet's: name a file checkpoint-….tar in {folder}"
            " (--checkpoints-dir)"
        )
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | (os.O_NOFOLLOW if folder is not None else 0))
    except FileNotFoundError as error:
        where = "" if folder is None or folder.is_dir() else _not_mounted(folder)
        raise AdapterError(f"there is no archive {path}{where}") from error
    except OSError as error:
        raise AdapterError(f"cannot read {path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise AdapterError(f"{path} is no regular file: name an archive of a checkpoint")
    # With the path as its name, which messages are about.
    return open(path, "rb", opener=lambda *_: descriptor)


def read_facts(archive: io.BufferedReader) -> ArchiveFacts:
    """Look into an archive.

    Raises:
        AdapterError: it is no checkpoint of a container.
    """
    size = os.fstat(archive.fileno()).st_size
    notes: dict[str, Any] = {}
    try:
        with tarfile.open(fileobj=archive, mode="r:") as members:
            for member in members:
                name = member.name.removeprefix("./")
                if name in {"config.dump", "spec.dump"} and member.size <= _NOTE_BYTES:
                    content = members.extractfile(member)
                    notes[name] = json.load(content) if content is not None else {}
                if len(notes) == 2:  # noqa: PLR2004 - both are found
                    break
    except (tarfile.TarError, OSError, ValueError, RecursionError) as error:
        raise AdapterError(f"{archive.name} is no tar archive of a checkpoint: {error}") from error
    if "config.dump" not in notes:
        raise AdapterError(f"{archive.name} has no config.dump: it is no checkpoint of a container")
    return _facts(size, notes["config.dump"], notes.get("spec.dump"))


def copy_archive(archive: io.BufferedReader, target: IO[bytes], *, told: Told | None = None) -> str:
    """Copy an archive, and give its SHA-256; `told` hears how much is done."""
    archive.seek(0)
    digest, done = hashlib.sha256(), 0
    while chunk := archive.read(_CHUNK_BYTES):
        digest.update(chunk)
        target.write(chunk)
        done += len(chunk)
        if told is not None:
            told(done)
    return digest.hexdigest()


def hashed(archive: io.BufferedReader) -> str:
    """SHA-256 of an archive."""
    archive.seek(0)
    return hashlib.file_digest(archive, "sha256").hexdigest()


def write_image(
    archive: io.BufferedReader, target: IO[bytes], *, name: str, container: str, architecture: str
) -> None:
    """Write the image that restores an archive, as a tar of OCI's image layout.

    Args:
        archive: read twice, as its hash goes first.
        target: need not be seekable.
        name: of the image, with its tag.
        container: that was checkpointed.
        architecture: of the node, as Go names it.

    Raises:
        AdapterError: the archive changes meanwhile.
        OSError: `target` takes no more.
    """
    size = os.fstat(archive.fileno()).st_size
    layer = {
        "mediaType": f"{_MEDIA}.layer.v1.tar",
        "digest": f"sha256:{hashed(archive)}",
        "size": size,
    }
    with tarfile.open(fileobj=target, mode="w|", bufsize=_CHUNK_BYTES) as layout:
        _add(layout, "oci-layout", {"imageLayoutVersion": "1.0.0"})
        config = _add_blob(layout, "config.v1+json", _config(layer, architecture))
        manifest = _add_blob(layout, "manifest.v1+json", _manifest(layer, config, container))
        entry = {**manifest, "annotations": dict.fromkeys(_NAMES, name)}
        index = {"mediaType": f"{_MEDIA}.index.v1+json", "manifests": [entry]}
        _add(layout, "index.json", {"schemaVersion": 2, **index})
        _add_layer(layout, archive, layer)


class _Hashing(io.RawIOBase):
    """A reader that hashes what passes, and knows whether it came to the end."""

    def __init__(self, source: io.BufferedReader) -> None:
        self.digest = hashlib.sha256()
        self.ended = False
        self._source = source

    def read(self, size: int = -1) -> bytes:
        content = self._source.read(size)
        self.digest.update(content)
        self.ended = len(content) < size
        return content


def _facts(size: int, config: Any, spec: Any) -> ArchiveFacts:
    notes = config if isinstance(config, dict) else {}
    found = spec.get("annotations") if isinstance(spec, dict) else None
    marks = found if isinstance(found, dict) else {}
    # CONTAINER_POD_NAMESPACE_UID_ATTEMPT, none of which has a "_": containerd's name for a pod's.
    parts = str(notes.get("name") or "").split("_")
    if len(parts) != _NAME_PARTS:
        # Of a container that was restored itself, the annotation says "containerd".
        parts = [
            str(marks.get(f"{_CRI}{name}") or "")
            for name in ("container-name", "sandbox-name", "sandbox-namespace", "sandbox-uid")
        ]
    return ArchiveFacts(
        size_bytes=size,
        container=parts[0],
        pod=parts[1],
        namespace=parts[2],
        pod_uid=parts[3],
        image=str(notes.get("rootfsImageName") or notes.get("rootfsImage") or ""),
    )


def _config(layer: dict[str, Any], architecture: str) -> dict[str, Any]:
    return {
        "architecture": architecture,
        "os": "linux",
        "config": {},
        # Uncompressed, a layer is its own content.
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }


def _manifest(layer: dict[str, Any], config: dict[str, Any], container: str) -> dict[str, Any]:
    return {
        "schemaVersion": 2,
        "mediaType": f"{_MEDIA}.manifest.v1+json",
        "config": config,
        "layers": [layer],
        "annotations": {CONTAINER_MARK: container},
    }


def _add_layer(layout: tarfile.TarFile, archive: io.BufferedReader, layer: dict[str, Any]) -> None:
    header = tarfile.TarInfo(_blob_path(layer["digest"]))
    header.size = layer["size"]
    archive.seek(0)
    reader = _Hashing(archive)
    try:
        layout.addfile(header, reader)
    except OSError as error:
        if reader.ended:
            text = f"{archive.name} became shorter while it was read; try again"
            raise AdapterError(text) from error
        raise
    if f"sha256:{reader.digest.hexdigest()}" != layer["digest"]:
        raise AdapterError(f"{archive.name} changed while it was read; try again")


def _add_blob(layout: tarfile.TarFile, kind: str, value: dict[str, Any]) -> dict[str, Any]:
    content = json.dumps(value, sort_keys=True).encode()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    _add(layout, _blob_path(digest), value)
    return {"mediaType": f"{_MEDIA}.{kind}", "digest": digest, "size": len(content)}


def _add(layout: tarfile.TarFile, name: str, value: dict[str, Any]) -> None:
    content = json.dumps(value, sort_keys=True).encode()
    header = tarfile.TarInfo(name)
    header.size = len(content)
    layout.addfile(header, io.BytesIO(content))


def _blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _not_mounted(folder: Path) -> str:
    return f": {folder} is missing; the component checkpoint-archives brings it into the pod"
