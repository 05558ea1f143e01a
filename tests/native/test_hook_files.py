"""The program on a host that is a folder: put there, renewed while it runs, proved, removed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from dra_driver.adapters.hook_files import DEFAULT_SOCKET, HookFiles
from dra_driver.errors import AdapterError
from tests.native.hook import FakeDriver, build

PLACE = "opt/gpuslice/bin/gpuslice-hook"


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of the program as they are shipped."""
    folder = tmp_path_factory.mktemp("image")
    for version in ("1", "2"):
        build(folder / version, "-O2", "-static", f'-DVERSION="{version}"')
    return folder


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "opt").mkdir(mode=0o755)
    return tmp_path


def _files(host: Path, source: Path, *, socket: str = DEFAULT_SOCKET) -> HookFiles:
    return HookFiles(host_root=host, source=source, socket=socket, owner=os.geteuid())


def test_program_is_on_the_host_when_it_was_installed(host: Path, image: Path) -> None:
    files = _files(host, image / "1")
    assert files.problem() == "/opt/gpuslice/bin/gpuslice-hook is not installed on the host"
    files.install()
    files.install()
    assert files.problem() is None
    assert [path.name for path in (host / PLACE).parent.iterdir()] == ["gpuslice-hook"]
    assert (host / PLACE).stat().st_mode & 0o7777 == 0o755


def test_program_is_renewed_when_an_older_one_runs(host: Path, image: Path, tmp_path: Path) -> None:
    _files(host, image / "1").install()
    newer = _files(host, image / "2")
    assert newer.problem() == f"{newer.target} on the host is another program or version"
    arguments = [str(host / PLACE), "oci", "poststop"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE) as running:
        newer.install()
        assert newer.problem() is None
        running.communicate()
    assert running.returncode == 0


def test_program_asks_at_another_socket_when_one_is_set(
    host: Path, image: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    _files(host, image / "1", socket="/earlier").install()
    files = _files(host, image / "1", socket=str(path))
    assert files.problem() == f"{files.target} asks at /earlier, not at {path}"
    files.install()
    environment = {"CRTOOLS_SCRIPT_ACTION": "post-resume"}
    with FakeDriver(path) as driver:
        subprocess.run([host / PLACE], env=environment, check=True)
    assert len(driver.requests) == 1
    _files(host, image / "1").install()
    assert not os.path.lexists(host / f"{PLACE}.socket")


def test_host_is_as_it_was_when_the_program_is_uninstalled(host: Path, image: Path) -> None:
    files = _files(host, image / "1", socket="/elsewhere")
    files.install()
    files.uninstall()
    files.uninstall()
    assert [path.name for path in host.rglob("*")] == ["opt"]


def test_folders_stay_when_something_else_is_in_them(host: Path, image: Path) -> None:
    files = _files(host, image / "1")
    files.install()
    (host / "opt/gpuslice/other").touch()
    files.uninstall()
    assert [path.name for path in (host / "opt/gpuslice").iterdir()] == ["other"]


@pytest.mark.parametrize("folder", ["opt", "opt/gpuslice", "opt/gpuslice/bin"])
def test_program_is_not_relied_on_when_others_may_change_its_folder(
    folder: str, host: Path, image: Path
) -> None:
    files = _files(host, image / "1")
    files.install()
    (host / folder).chmod(0o757)
    assert "may be changed by others" in str(files.problem())
    with pytest.raises(AdapterError, match="chown it to"):
        files.install()


@pytest.mark.parametrize("mode", [0o777, 0o744, 0o4755])
def test_program_is_put_right_when_its_mode_is_another(mode: int, host: Path, image: Path) -> None:
    files = _files(host, image / "1")
    files.install()
    (host / PLACE).chmod(mode)
    assert f"mode {mode:04o}" in str(files.problem())
    files.install()
    assert files.problem() is None


def test_nothing_is_put_behind_a_link(host: Path, image: Path) -> None:
    (host / "elsewhere").mkdir()
    (host / "opt/gpuslice").symlink_to(host / "elsewhere")
    with pytest.raises(AdapterError, match="is a link or a file where a folder is needed"):
        _files(host, image / "1").install()
    assert list((host / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("program", ["#!/bin/sh\nexit 3\n", "no program", "#!/bin/sh\necho hm\n"])
def test_program_is_not_relied_on_when_it_does_not_run(
    program: str, host: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_text(program)
    with pytest.raises(AdapterError, match=r"does not run on this node|cannot start"):
        _files(host, source).install()


def test_image_is_named_when_the_program_is_missing_there(host: Path, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="missing: build it by hack/native"):
        _files(host, tmp_path / "none").install()


@pytest.mark.parametrize("target", ["/gpuslice-hook", "opt/x", "/opt/../gpuslice-hook"])
def test_target_is_refused_when_it_is_no_file_in_a_folder(target: str, host: Path) -> None:
    with pytest.raises(AdapterError, match="name a file in a folder"):
        HookFiles(host_root=host, target=PurePosixPath(target))


@pytest.mark.parametrize("path", ["", "run/s", "/" + "x" * 107])
def test_socket_is_refused_when_nobody_could_listen_there(path: str, host: Path) -> None:
    with pytest.raises(AdapterError, match="absolute path of at most 107 bytes"):
        HookFiles(host_root=host, socket=path)
