"""Archives of checkpoints, and the images that restore them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dra_driver.adapters.checkpoint_archive import (
    CONTAINER_MARK,
    ArchiveFacts,
    copy_archive,
    open_archive,
    read_facts,
    write_image,
)
from dra_driver.errors import AdapterError
from tests.fakes.archives import NAME, write_checkpoint

IMAGE = "localhost/checkpoint/team/trainer/main:1"


def facts(path: Path) -> ArchiveFacts:
    with closing(open_archive(path)) as file:
        return read_facts(file)


def image_of(path: Path) -> dict[str, bytes]:
    """Files of the image's layout, written to what cannot seek."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: Any) -> int:
            raise io.UnsupportedOperation

        def tell(self) -> int:
            raise io.UnsupportedOperation

    pipe = Pipe()
    with closing(open_archive(path)) as file:
        write_image(file, pipe, name=IMAGE, container="main", architecture="amd64")
    with tarfile.open(fileobj=io.BytesIO(pipe.getvalue())) as layout:
        members = {each.name: layout.extractfile(each) for each in layout}
        return {name: file.read() for name, file in members.items() if file is not None}


def test_archive_tells_whose_checkpoint_it_is(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path)
    assert facts(path) == ArchiveFacts(
        size_bytes=path.stat().st_size,
        container="main",
        namespace="team",
        pod="trainer",
        pod_uid="uid-trainer",
        image="docker.io/library/busybox:1",
    )


def test_archive_may_tell_little(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, config={"name": "x"}, spec=None)
    assert facts(path) == ArchiveFacts(size_bytes=path.stat().st_size)
    path = write_checkpoint(tmp_path, config={"name": "x"})
    assert (facts(path).container, facts(path).pod_uid) == ("containerd", "uid-trainer")


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"other": b"1"}, "has no config.dump"),
        ({"config.dump": b"{"}, "is no tar archive of a checkpoint"),
        ({"config.dump": b"[" * 100_000}, "is no tar archive of a checkpoint"),
        ({}, "has no config.dump"),
    ],
)
def test_archive_of_something_else_is_refused(
    tmp_path: Path, files: Mapping[str, bytes], text: str
) -> None:
    path = tmp_path / NAME
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    with pytest.raises(AdapterError, match=text):
        facts(path)


@pytest.mark.parametrize("content", [b"", b"x" * 2000, b"\x1f\x8b" + bytes(2000)])
def test_file_that_is_no_tar_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / NAME
    path.write_bytes(content)
    with pytest.raises(AdapterError, match=r"no tar archive|no config\.dump") as refused:
        facts(path)
    assert str(refused.value).startswith(str(path))


def test_archive_is_opened_in_its_folder_alone(tmp_path: Path) -> None:
    folder, other = tmp_path / "checkpoints", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    path = write_checkpoint(folder)
    with closing(open_archive(path, folder=folder)):
        pass
    secret = write_checkpoint(other)
    (folder / "checkpoint-link.tar").symlink_to(secret)
    (folder / "checkpoint-folder.tar").mkdir()
    (folder / "secret").write_text("secret")
    for bad, text in (
        (secret, "is no checkpoint of the kubelet's"),
        (folder / ".." / "other" / NAME, "is no checkpoint of the kubelet's"),
        (folder / "secret", "is no checkpoint of the kubelet's"),
        (folder / "checkpoint-link.tar", "cannot read"),
        (folder / "checkpoint-folder.tar", "is no regular file"),
        (folder / "checkpoint-none.tar", "there is no archive"),
    ):
        with pytest.raises(AdapterError, match=text):
            open_archive(bad, folder=folder)
    with pytest.raises(AdapterError, match="component checkpoint-archives"):
        open_archive(tmp_path / "missing" / NAME, folder=tmp_path / "missing")


def test_copy_is_the_archive_and_its_hash(tmp_path: Path) -> None:
    path, copy, told = write_checkpoint(tmp_path, payload=3 << 20), io.BytesIO(), list[int]()
    with closing(open_archive(path)) as file:
        file.seek(7)
        digest = copy_archive(file, copy, told=told.append)
    assert copy.getvalue() == path.read_bytes()
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert told == sorted(told)
    assert told[-1] == path.stat().st_size


def test_image_has_the_archive_as_its_only_layer_and_names_the_container(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, payload=3 << 20)
    files = image_of(path)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert set(entry["annotations"].values()) == {IMAGE}
    manifest = json.loads(files[blob(entry)])
    assert manifest["annotations"] == {CONTAINER_MARK: "main"}
    (layer,) = manifest["layers"]
    assert files[blob(layer)] == path.read_bytes()
    config = json.loads(files[blob(manifest["config"])])
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    for each in (entry, manifest["config"], layer):
        content = files[blob(each)]
        assert each["size"] == len(content)
        assert each["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert image_of(path) == files


@pytest.mark.parametrize("size", [-1024, 0])
def test_image_is_not_made_of_an_archive_that_changes(tmp_path: Path, size: int) -> None:
    path = write_checkpoint(tmp_path, payload=3 << 20)

    class Changing(io.BytesIO):
        def write(self, content: Any) -> int:
            # The hash is taken by now.
            with path.open("r+b") as file:
                file.seek(1 << 20)
                file.write(b"changed")
                file.truncate(path.stat().st_size + size)
            return super().write(content)

    with closing(open_archive(path)) as file, pytest.raises(AdapterError, match="while it was"):
        write_image(file, Changing(), name=IMAGE, container="main", architecture="amd64")


def blob(entry: Mapping[str, Any]) -> str:
    return "blobs/" + str(entry["digest"]).replace(":", "/")
