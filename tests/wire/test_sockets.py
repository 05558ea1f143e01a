from __future__ import annotations

import os
import socket
import stat
from contextlib import closing
from pathlib import Path

import pytest

from dra_driver.errors import FatalError, SettingsError
from dra_driver.kubelet.paths import socket_paths
from dra_driver.kubelet.sockets import instance
from dra_driver.sockets import PATH_MAX_BYTES, hidden_path, publish
from tests.builders import DRIVER
from tests.wire.plugin import Plugin, channel, get_info, paths_in, prepare, running

POD = "6f0e1c2d-0000-4000-8000-00000000000a"
OTHER_POD = "6f0e1c2d-0000-4000-8000-00000000000b"


def test_paths_follow_the_kubelets_names() -> None:
    alone = paths_in(Path("/k"))
    assert str(alone.registration) == "/k/plugins_registry/gpuslice.io-reg.sock"
    assert str(alone.dra) == "/k/plugins/gpuslice.io/dra.sock"
    rolled = paths_in(Path("/k"), pod_uid=POD)
    assert str(rolled.registration) == f"/k/plugins_registry/gpuslice.io-{POD}-reg.sock"
    assert str(rolled.dra) == f"/k/plugins/gpuslice.io/dra-{POD}.sock"


@pytest.mark.parametrize("size", [107, 108, 120, 140])
def test_paths_fit_and_stay_unique_when_the_full_name_has(size: int) -> None:
    fixed = len(f"/plugins_registry/{DRIVER}-{POD}-reg.sock")
    root = Path("/" + "r" * (size - fixed - 1))
    paths = paths_in(root, pod_uid=POD)
    others = paths_in(root, pod_uid=OTHER_POD)
    full = root / "plugins_registry" / f"{DRIVER}-{POD}-reg.sock"
    assert len(os.fsencode(full)) == size
    assert (paths.registration == full) == (size <= 107)
    for path, other in ((paths.registration, others.registration), (paths.dra, others.dra)):
        assert len(os.fsencode(path)) <= PATH_MAX_BYTES
        assert path != other
        assert paths.registration.name.endswith("-reg.sock")


@pytest.mark.parametrize("size", [107, 108])
def test_sockets_are_served_when_the_registration_path_has(root: Path, size: int) -> None:
    fixed = len(f"{root}//plugins_registry/{DRIVER}-{POD}-reg.sock")
    with running(root / ("r" * (size - fixed)), pod_uid=POD) as plugin:
        assert get_info(plugin.paths.registration).endpoint == str(plugin.paths.dra)


def test_paths_are_refused_when_even_the_shortest_is_too_long() -> None:
    with pytest.raises(SettingsError) as refused:
        paths_in(Path("/" + "r" * 90), pod_uid=POD)
    text = str(refused.value)
    assert "--kubelet-registrar-directory-path" in text
    assert "r" * 90 in text
    assert "107" in text


@pytest.mark.parametrize("folder", ["", "relative/dir"])
@pytest.mark.parametrize("which", ["registrar", "plugins"])
def test_paths_are_refused_when_a_folder_is_not_absolute(folder: str, which: str) -> None:
    folders = {
        "registrar_directory": Path(folder if which == "registrar" else "/k"),
        "plugins_directory": Path(folder if which == "plugins" else "/k"),
    }
    with pytest.raises(SettingsError, match=rf"--kubelet-{which}.*-directory-path.*absolute"):
        socket_paths(driver=DRIVER, pod_uid="", **folders)


@pytest.mark.parametrize(
    ("driver", "pod_uid"),
    [("", ""), ("a/b", ""), (".hidden", ""), (DRIVER, "../x"), (DRIVER, "a/b")],
)
def test_paths_are_refused_when_a_name_is_no_file_name(driver: str, pod_uid: str) -> None:
    with pytest.raises(SettingsError, match="cannot be part of a socket's name"):
        socket_paths(
            driver=driver,
            pod_uid=pod_uid,
            registrar_directory=Path("/k"),
            plugins_directory=Path("/k"),
        )


def test_hidden_paths_are_short_hidden_and_one_for_each_path() -> None:
    paths = [Path("/k/x-reg.sock"), Path("/k/y-reg.sock"), Path("/k/dra.sock")]
    hidden = [hidden_path(path) for path in paths]
    assert len(set(hidden)) == 3
    assert all(each.name.startswith(".") for each in hidden)
    assert all(len(str(h)) <= len(str(p)) for h, p in zip(hidden, paths, strict=True))


def test_nothing_is_made_outside_the_root_and_nothing_hidden_stays(root: Path) -> None:
    with running(root) as plugin:
        made = {str(path.relative_to(root)) for path in root.rglob("*")}
        assert made == {
            "plugins",
            f"plugins/{DRIVER}",
            f"plugins/{DRIVER}/dra.sock",
            f"plugins/{DRIVER}/instance.lock",
            "plugins_registry",
            f"plugins_registry/{DRIVER}-reg.sock",
        }
        for path in (plugin.paths.dra, plugin.paths.registration):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(plugin.paths.dra.parent.stat().st_mode) == 0o750


def test_second_process_is_refused_and_the_first_serves_on_when_identities_are_equal(
    root: Path,
) -> None:
    with running(root) as plugin:
        before = plugin.paths.dra.stat().st_ino, plugin.paths.registration.stat().st_ino
        with pytest.raises(FatalError) as refused:
            Plugin(root).start()
        assert f"pid {os.getpid()}" in str(refused.value)
        assert str(plugin.paths.lock) in str(refused.value)
        assert "--pod-uid" in str(refused.value)
        assert (plugin.paths.dra.stat().st_ino, plugin.paths.registration.stat().st_ino) == before
        with channel(plugin.paths.dra) as opened:
            prepare(opened)


def test_second_process_serves_beside_the_first_when_it_has_another_pod_uid(root: Path) -> None:
    with running(root, pod_uid=POD) as first, running(root, pod_uid=OTHER_POD) as second:
        for plugin in (first, second):
            assert get_info(plugin.paths.registration).endpoint == str(plugin.paths.dra)
        second.stop()
        assert get_info(first.paths.registration)
        assert not second.paths.registration.exists()


@pytest.mark.parametrize("next_pod", ["", POD, OTHER_POD])
@pytest.mark.parametrize("dead_pod", ["", POD])
def test_sockets_and_lock_of_a_dead_process_are_cleared(
    root: Path, dead_pod: str, next_pod: str
) -> None:
    dead = _die(root, dead_pod)
    with running(root, pod_uid=next_pod) as plugin:
        assert get_info(plugin.paths.registration)
        assert sorted(path.name for path in (root / "plugins_registry").iterdir()) == [
            plugin.paths.registration.name
        ]
        assert sorted(path.name for path in plugin.paths.dra.parent.iterdir()) == sorted(
            [plugin.paths.dra.name, plugin.paths.lock.name]
        )
    assert not dead.exists()


def test_dead_socket_is_cleared_when_its_lock_file_is_lost(root: Path) -> None:
    dead = _die(root, OTHER_POD)
    paths_in(root, pod_uid=OTHER_POD).lock.unlink()
    with running(root, pod_uid=POD):
        assert not dead.exists()


def test_live_socket_stays_when_its_lock_file_is_lost(root: Path) -> None:
    with running(root, pod_uid=OTHER_POD) as other:
        other.paths.lock.unlink()
        with running(root, pod_uid=POD):
            assert get_info(other.paths.registration)
        assert get_info(other.paths.registration)


def test_foreign_files_and_sockets_stay_when_they_only_look_alike(root: Path) -> None:
    registry = root / "plugins_registry"
    registry.mkdir()
    foreign = [
        registry / "other.io-reg.sock",
        registry / f"{DRIVER}-x-reg.sock",
        registry / f"{DRIVER}-x-{POD}-reg.sock",
    ]
    for path in foreign:
        _bind_dead(path)
    (registry / f"{DRIVER}-{POD}-reg.sock").write_text("not a socket")
    with running(root, pod_uid=OTHER_POD):
        pass
    assert all(path.exists() for path in [*foreign, registry / f"{DRIVER}-{POD}-reg.sock"])


@pytest.mark.parametrize("which", ["registration", "dra"])
def test_start_is_refused_when_a_stranger_serves_the_path(root: Path, which: str) -> None:
    path: Path = getattr(paths_in(root), which)
    path.parent.mkdir(parents=True)
    with closing(socket.socket(socket.AF_UNIX)) as stranger:
        stranger.bind(str(path))
        stranger.listen()
        inode = path.stat().st_ino
        with pytest.raises(FatalError, match="another driver may use"):
            Plugin(root).start()
        assert path.stat().st_ino == inode
    assert not paths_in(root).lock.exists() or not _held(root)


def test_start_is_refused_when_a_file_stands_at_the_path(root: Path) -> None:
    path = paths_in(root).registration
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    with pytest.raises(FatalError, match=str(path)):
        Plugin(root).start()
    assert path.read_text() == "precious"


def test_start_is_refused_and_undone_when_a_folder_is_a_file(root: Path) -> None:
    (root / "plugins_registry").write_text("")
    with pytest.raises(FatalError, match="plugins_registry"):
        Plugin(root).start()
    assert not paths_in(root).dra.exists()


def test_stop_leaves_sockets_that_another_process_made_since(root: Path) -> None:
    plugin = Plugin(root).start()
    for path in (plugin.paths.registration, plugin.paths.dra):
        path.unlink()
        _bind_dead(path)
    assert plugin.stop()
    assert plugin.paths.registration.is_socket()
    assert plugin.paths.dra.is_socket()


def test_stop_removes_both_sockets_and_the_lock_and_start_works_again(root: Path) -> None:
    for _ in range(2):
        plugin = Plugin(root).start()
        get_info(plugin.paths.registration)
        assert plugin.stop()
        assert [path for path in root.rglob("*") if not path.is_dir()] == []


def test_publish_says_which_socket_when_it_cannot_be_put_in_place(root: Path) -> None:
    with pytest.raises(FatalError, match=f"{root}/none.sock"):
        publish(root / "none.sock", bound=root / "hidden")


def _die(root: Path, pod_uid: str) -> Path:
    """Leave what a killed process leaves; the registration socket."""
    paths = paths_in(root, pod_uid=pod_uid)
    with instance(paths):
        lock = paths.lock.read_bytes()
    for path in (paths.registration, paths.dra):
        _bind_dead(path)
    paths.lock.write_bytes(lock)
    return paths.registration


def _bind_dead(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))


def _held(root: Path) -> bool:
    try:
        with instance(paths_in(root)):
            return False
    except FatalError as error:
        return "another process" in str(error)
