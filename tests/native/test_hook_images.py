"""gpuslice-hook before a restore: what the images show of a claim."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dra_driver.checkpoint.raw_line import Phase
from tests.native.hook import MARKER, FakeDriver, HookProgram, hang

OTHERS = b"\x08\x01./run/gpuslice/clai ./run/gpuslice " * 500
NAME = "mountpoints-13.img"


def made(folder: Path, **images: bytes) -> Path:
    """A folder of images; of their names, dashes and dots are left out."""
    folder.mkdir()
    (folder / "core-1.img").write_bytes(MARKER.encode())
    for name, content in images.items():
        (folder / f"mountpoints-{name}.img").write_bytes(content)
    return folder


def asked(hook: HookProgram, folder: Path, root: Path) -> bool:
    """Whether the driver is asked before what is in a folder of images is restored."""
    hook.proc.process(88)
    images = hook.proc.images(88, str(folder))
    with FakeDriver(root / "s") as driver:
        ended = hook.script("pre-restore", "--socket", driver.path, CRTOOLS_IMAGE_DIR=images)
    assert (ended.status, ended.text) == (0, "")
    if driver.requests:
        assert driver.decoded().head.phase is Phase.PRE_RESTORE
    return bool(driver.requests)


@pytest.mark.parametrize("before", [0, 1, 4075, 4076, 4077, 4095, 4096, 8170, 100_000])
def test_hook_asks_when_the_images_show_a_claim_somewhere(
    before: int, hook: HookProgram, tmp_path: Path
) -> None:
    shown = OTHERS[:before].ljust(before, b"/") + MARKER.encode() + b"\x18\x02"
    assert asked(hook, made(tmp_path / "images", a=OTHERS, b=shown, c=OTHERS), tmp_path)


def test_hook_does_not_ask_when_the_images_show_no_claim(hook: HookProgram, tmp_path: Path) -> None:
    folder = made(tmp_path / "images", a=OTHERS, b=MARKER[:-1].encode())
    assert not asked(hook, folder, tmp_path)


def test_hook_finds_the_image_when_it_is_one_of_thousands(
    hook: HookProgram, tmp_path: Path
) -> None:
    folder = made(tmp_path / "images", a=OTHERS, z=MARKER.encode())
    for number in range(3000):
        (folder / f"pages-of-a-process-{number}.img").touch()
    assert asked(hook, folder, tmp_path)


@pytest.mark.parametrize("kind", ["no folder", "no image", "a folder", "a pipe", "a link", "cut"])
def test_hook_asks_when_the_images_cannot_be_read(
    kind: str, hook: HookProgram, tmp_path: Path
) -> None:
    folder = made(tmp_path / "images")
    image = folder / NAME
    match kind:
        case "no folder":
            folder = tmp_path / "nowhere"
        case "a folder":
            image.mkdir()
        case "a link":
            image.symlink_to("core-1.img")
        case "a pipe":
            os.mkfifo(image)
        case "cut":
            image.touch()
        case _:
            assert not image.exists()
    assert asked(hook, folder, tmp_path)


def test_restore_without_a_claim_does_not_wait_when_the_driver_hangs(
    impatient: HookProgram, tmp_path: Path
) -> None:
    folder = made(tmp_path / "images", a=OTHERS)
    impatient.proc.process(88)
    images = impatient.proc.images(88, str(folder))
    with FakeDriver(tmp_path / "s", hang) as driver:
        ended = impatient.script("pre-restore", "--socket", driver.path, CRTOOLS_IMAGE_DIR=images)
    assert (ended.status, ended.text) == (0, "")
