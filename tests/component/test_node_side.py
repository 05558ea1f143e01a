"""What a person's commands run on a node."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from dra_driver.adapters.process_feed import feed_program
from dra_driver.app.node_side import host_command, import_archive
from dra_driver.errors import AdapterError
from dra_driver.settings import Settings, load
from tests.command_line import Run, run
from tests.fakes.archives import NAME, write_checkpoint

__all__ = ["run"]

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "checkpoints").mkdir()
    write_checkpoint(tmp_path / "checkpoints", payload=300_000)
    return load({"checkpoints_dir": str(tmp_path / "checkpoints")})


def ctr(folder: Path, script: str) -> str:
    path = folder / "ctr"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def imported(settings: Settings, program: str) -> dict[str, object]:
    archive = str(settings.checkpoints_dir / NAME)
    return import_archive(
        settings, archive, image="localhost/a:1", container="", ctr=program, socket="/c.sock"
    )


def test_image_is_piped_into_ctr(settings: Settings, tmp_path: Path) -> None:
    program = ctr(tmp_path, f'echo "$@" >{tmp_path}/arguments; cat >{tmp_path}/image')
    found = imported(settings, program)
    assert (found["image"], found["container"]) == ("localhost/a:1", "main")
    assert (tmp_path / "arguments").read_text().split() == (
        ["--address", "/c.sock", "--namespace", "k8s.io", "images", "import", "-"]
    )
    with tarfile.open(tmp_path / "image") as layout:
        assert "oci-layout" in layout.getnames()


@pytest.mark.parametrize(
    "script", ["cat >/dev/null; echo no such >&2; exit 3", "echo no such; exit 3"]
)
def test_ctr_that_fails_is_quoted(settings: Settings, tmp_path: Path, script: str) -> None:
    with pytest.raises(AdapterError, match=r"\(status 3\): no such; give --ctr and"):
        imported(settings, ctr(tmp_path, script))


def test_ctr_that_is_not_there_is_named(settings: Settings) -> None:
    with pytest.raises(AdapterError, match="cannot start ctr"):
        imported(settings, "/no/ctr")


def test_programs_of_the_host_run_with_its_files() -> None:
    assert host_command(Path("/"), ("ctr", "x")) == ("ctr", "x")
    assert host_command(Path("/host"), ("ctr", "x")) == ("chroot", "/host", "ctr", "x")


def test_program_that_takes_too_long_is_ended() -> None:
    ended = feed_program(
        ("sleep", "60"), lambda target: None, name="sleep", environment=PATH, timeout_s=0.2
    )
    assert ended.status is None


def test_program_is_ended_when_its_feed_fails(tmp_path: Path) -> None:
    def feed(_target: object) -> None:
        raise AdapterError("changed")

    with pytest.raises(AdapterError, match="changed"):
        feed_program(("sleep", "60"), feed, name="sleep", environment=PATH, timeout_s=60.0)


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("archive", "eat"), 2, "ACTION is 'eat': give check, facts, send or import"),
        (("archive", "send", "/etc/shadow"), 1, "is no checkpoint of the kubelet's"),
        (("archive", "check", "--checkpoints-dir", "/no/such"), 1, "component checkpoint-archives"),
        (("hook", "ListOperations", "["), 2, "REQUEST is no JSON"),
        (("hook", "ListOperations", "[]"), 2, "REQUEST is no JSON object"),
        (("hook",), 2, "missing argument 'METHOD'"),
        (("checkpoint",), 2, "missing argument 'POD'; see gpuslice checkpoint --help"),
        (("restore",), 2, "missing argument 'ARCHIVE'; see gpuslice restore --help"),
    ],
)
def test_bad_command_says_one_sentence(
    run: Run, arguments: tuple[str, ...], status: int, text: str
) -> None:
    ended = run(*arguments)
    assert (ended.status, ended.out) == (status, "")
    assert ended.err.startswith("gpuslice: ")
    assert text in ended.err
    assert len(ended.err.splitlines()) == 1


def test_archive_is_sent_by_the_command(settings: Settings) -> None:
    path = settings.checkpoints_dir / NAME
    done = subprocess.run(
        [sys.executable, "-m", "dra_driver", "archive", "send", path],
        env={"GPUSLICE_CHECKPOINTS_DIR": str(settings.checkpoints_dir), **PATH},
        capture_output=True,
        check=True,
    )
    assert done.stdout == path.read_bytes()
    assert done.stderr.decode().split() == [hashlib.sha256(done.stdout).hexdigest()]
