"""Container images as archives in OCI layout, written without a container engine."""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

BUSYBOX = "docker.io/library/busybox:1"
PAUSE = "docker.io/local/pause:1"

_MEDIA = "application/vnd.oci.image"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image by full name, of uncompressed layers, the lowest first."""

    name: str
    layers: tuple[Path, ...]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    """Of the manifest."""


def write_archive(target: Path, images: Sequence[Image]) -> Path:
    """Write images that one import brings in together; the same content gives the same bytes."""
    with tarfile.open(target, "w") as archive:
        add_file(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        blobs = _Blobs(archive)
        manifests = []
        for image in images:
            manifest = blobs.add_json("manifest.v1+json", _manifest(blobs, image))
            names = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
            manifests.append({**manifest, "annotations": dict.fromkeys(names, image.name)})
        index = {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.index.v1+json",
            "manifests": manifests,
        }
        add_file(archive, "index.json", json.dumps(index).encode())
    return target


def write_base_images(folder: Path) -> Path:
    """Write the archive of what each cluster has: busybox, and what holds a pod's namespaces."""
    layer = folder / "busybox.layer.tar"
    with tarfile.open(layer, "w") as archive:
        busybox = shutil.which("busybox")
        assert busybox, "there is no busybox on PATH"
        add_folder(archive, "bin")
        add_folder(archive, "tmp", mode=0o1777)
        add_file(archive, "bin/busybox", Path(busybox).read_bytes(), mode=0o755)
        applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
        for applet in sorted(set(applets.stdout.split()) - {"busybox"}):
            add_link(archive, f"bin/{applet}", "busybox")
    path = ("PATH=/bin",)
    return write_archive(
        folder / "base.tar",
        [
            Image(name=BUSYBOX, layers=(layer,), command=("sh",), environment=path),
            Image(name=PAUSE, layers=(layer,), entrypoint=("/bin/busybox", "sleep", "infinity")),
        ],
    )


def add_file(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def add_folder(archive: tarfile.TarFile, name: str, *, mode: int = 0o755) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)


def add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
    archive.addfile(entry)


def add_tree(
    archive: tarfile.TarFile,
    folder: Path,
    *,
    at: str = "",
    keep: Callable[[Path], bool] = lambda _: True,
) -> None:
    """Add what is in a folder, with its owners and modes but without times, sorted by name.

    It goes to the folder ``at`` of the archive. ``keep`` decides over paths relative to the folder;
    what is below one that is left out stays out too.
    """
    for path in _walk(folder, keep=lambda path: keep(path.relative_to(folder))):
        entry = archive.gettarinfo(path, str(Path(at) / path.relative_to(folder)))
        entry.mtime = 0
        entry.uname = entry.gname = ""
        if entry.isreg():
            with path.open("rb") as content:
                archive.addfile(entry, content)
        else:
            archive.addfile(entry)


def _walk(folder: Path, *, keep: Callable[[Path], bool]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if keep(path):
            yield path
            if path.is_dir() and not path.is_symlink():
                yield from _walk(path, keep=keep)


class _Blobs:
    """The content of an archive, each once, named by its hash."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._written: set[str] = set()

    def add_json(self, kind: str, value: Any) -> dict[str, Any]:
        content = json.dumps(value).encode()
        return self._add(f"{_MEDIA}.{kind}", io.BytesIO(content))

    def add_layer(self, path: Path) -> dict[str, Any]:
        with path.open("rb") as content:
            return self._add(f"{_MEDIA}.layer.v1.tar", content)

    def _add(self, media_type: str, content: IO[bytes]) -> dict[str, Any]:
        digest, size = hashlib.sha256(), 0
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
        content.seek(0)
        name = digest.hexdigest()
        if name not in self._written:
            self._written.add(name)
            entry = tarfile.TarInfo(f"blobs/sha256/{name}")
            entry.size = size
            self._archive.addfile(entry, content)
        return {"mediaType": media_type, "digest": f"sha256:{name}", "size": size}


def _manifest(blobs: _Blobs, image: Image) -> dict[str, Any]:
    layers = [blobs.add_layer(layer) for layer in image.layers]
    config = {
        # Nothing is compiled for anything else.
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": list(image.entrypoint),
            "Cmd": list(image.command),
            "Env": list(image.environment),
            "Labels": image.labels,
        },
        # Uncompressed, a layer is its own content.
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
    }
    return {
        "schemaVersion": 2,
        "mediaType": f"{_MEDIA}.manifest.v1+json",
        "config": blobs.add_json("config.v1+json", config),
        "layers": layers,
        **({"annotations": image.annotations} if image.annotations else {}),
    }
