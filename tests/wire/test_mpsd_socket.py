from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from threading import Event

import pytest

from dra_api.mpsd import mpsd_v1alpha1_pb2 as mpsd
from dra_driver.errors import FatalError, SettingsError
from dra_driver.mps.server import check_path
from dra_driver.sockets import bound_path, only_process, private_folder
from tests.builders import uuid
from tests.fakes.sharing import FakeSharing
from tests.wire.mpsd import serving, stub


@pytest.fixture
def sharing() -> FakeSharing:
    return FakeSharing(uuid(0))


def _answers(path: Path) -> bool:
    with stub(path) as calls:
        return len(calls.Get(mpsd.GetRequest(), timeout=10).gpus) == 1


def test_socket_is_roots_alone_and_nothing_else_is_left(root: Path, sharing: FakeSharing) -> None:
    path = root / "run" / "mpsd.sock"
    before = os.umask(0)
    try:
        with serving(path, sharing):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert _names(path.parent) == ["mpsd.sock", "mpsd.sock.lock"]
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755
    finally:
        os.umask(before)
    assert _names(path.parent) == []


def test_socket_is_made_in_a_folder_that_nobody_else_enters(root: Path) -> None:
    folder = bound_path(root / "mpsd.sock").parent
    # As a process left it that was killed in between, and of which somebody changed the mode.
    folder.mkdir()
    folder.chmod(0o777)
    with private_folder(folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert _names(root) == []
    folder.symlink_to(root)
    with pytest.raises(FatalError, match="in the way"), private_folder(folder):
        pass
    assert folder.is_symlink()


def test_living_server_keeps_its_socket_when_another_starts(
    root: Path, sharing: FakeSharing
) -> None:
    path = root / "mpsd.sock"
    with serving(path, sharing):
        with pytest.raises(FatalError, match=f"pid {os.getpid()}"), serving(path, sharing):
            pass
        assert _answers(path)


def test_dead_socket_is_replaced(root: Path, sharing: FakeSharing) -> None:
    path = root / "mpsd.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with serving(path, sharing):
        assert _answers(path)


def test_server_does_not_start_when_something_alive_or_else_is_in_its_place(
    root: Path, sharing: FakeSharing
) -> None:
    path = root / "mpsd.sock"
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(path))
        alive.listen()
        with pytest.raises(FatalError, match="is no dead socket"), serving(path, sharing):
            pass
    path.unlink()
    path.write_text("precious")
    with pytest.raises(FatalError, match="is no dead socket"), serving(path, sharing):
        pass
    assert path.read_text() == "precious"
    assert _names(root) == ["mpsd.sock"]


def test_server_does_not_start_when_others_can_write_to_its_folder(
    root: Path, sharing: FakeSharing
) -> None:
    root.chmod(0o777)
    with pytest.raises(FatalError, match="mode 0777"), serving(root / "mpsd.sock", sharing):
        pass


@pytest.mark.parametrize("size", [107, 108])
def test_path_is_checked_before_anything_is_made(
    root: Path, sharing: FakeSharing, size: int
) -> None:
    path = root / ("r" * (size - len(f"{root}//mpsd.sock"))) / "mpsd.sock"
    if size > 107:
        with pytest.raises(SettingsError, match=r"--mpsd-socket is too long: .*108 bytes.*107"):
            check_path(path)
        return
    check_path(path)
    with serving(path, sharing):
        assert _answers(path)


def test_path_is_refused_when_it_is_relative() -> None:
    with pytest.raises(SettingsError, match="--mpsd-socket is 'mpsd"):
        check_path(Path("mpsd.sock"))


def test_one_process_works_on_a_folder(root: Path) -> None:
    lock = root / "run" / "mpsd.lock"
    refused = pytest.raises(FatalError, match=f"pid {os.getpid()}.*holds daemons")
    with only_process(lock, what="holds daemons"), refused:
        only_process(lock, what="holds daemons").__enter__()
    assert not lock.exists()
    with only_process(lock, what="holds daemons"):
        assert lock.exists()


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("replaced", [False, True])
def test_watch_says_so_when_the_socket_is_not_the_own_any_more(
    root: Path,
    sharing: FakeSharing,
    replaced: bool,  # noqa: FBT001
) -> None:
    path = root / "mpsd.sock"
    with serving(path, sharing) as server:
        path.rename(root / "aside.sock")
        if replaced:
            path.touch()
        with pytest.raises(FatalError, match=f"{path} was removed or replaced"):
            server.watch(_OneLook())


def test_watch_is_content_when_the_server_stops(root: Path, sharing: FakeSharing) -> None:
    path = root / "mpsd.sock"
    with serving(path, sharing) as server:
        server.watch(_OneLook())
    assert not path.exists()
    server.watch(_OneLook())


class _OneLook(Event):
    """Is set at the second wait."""

    def __init__(self) -> None:
        super().__init__()
        self._waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        self._waits += 1
        return self._waits > 1
