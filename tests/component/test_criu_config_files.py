"""CRIU's configuration on a host that is a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dra_driver.adapters.criu_config import CriuConfig
from dra_driver.errors import AdapterError
from dra_driver.plan.criu_config import Absent, Installed, Origin, merge

SCRIPT = "/opt/gpuslice/bin/gpuslice-hook"
OWNER = os.geteuid()


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir(mode=0o755)
    return tmp_path


@pytest.fixture
def config(host: Path) -> CriuConfig:
    return CriuConfig(host_root=host, owner=OWNER)


def _tree(host: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(host)): (
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in host.rglob("*")
    }


def test_host_is_as_it_was_when_the_hook_is_uninstalled(host: Path, config: CriuConfig) -> None:
    before = _tree(host)
    config.install(SCRIPT)
    config.install("/new")
    assert config.states() == (
        ("/etc/criu/runc.conf", Installed(script="/new", origin=Origin.NO_FOLDER)),
    )
    assert (host / "etc/criu/runc.conf").stat().st_mode & 0o7777 == 0o644
    config.uninstall()
    config.uninstall()
    assert _tree(host) == before


def test_folder_stays_when_it_was_there_before(host: Path, config: CriuConfig) -> None:
    (host / "etc/criu").mkdir()
    before = _tree(host)
    config.install(SCRIPT)
    stands = Installed(script=SCRIPT, origin=Origin.NO_FILE)
    assert config.states() == (("/etc/criu/runc.conf", stands),)
    config.uninstall()
    assert _tree(host) == before


def test_folder_stays_when_somebody_else_uses_it_by_now(host: Path, config: CriuConfig) -> None:
    config.install(SCRIPT)
    (host / "etc/criu/default.conf").touch()
    config.uninstall()
    assert [path.name for path in (host / "etc/criu").iterdir()] == ["default.conf"]


def test_both_files_keep_bytes_and_mode_when_they_are_merged_and_restored(
    host: Path, config: CriuConfig
) -> None:
    folder = host / "etc/criu"
    folder.mkdir()
    for name, content, mode in (
        ("runc.conf", b"tcp-close\n# \xff\xfe", 0o640),
        ("crun.conf", b"", 0o600),
    ):
        (folder / name).write_bytes(content)
        (folder / name).chmod(mode)
    before = _tree(host)
    config.install(SCRIPT)
    merged = (folder / "runc.conf").read_bytes()
    assert merged == merge("", SCRIPT).encode() + b"tcp-close\n# \xff\xfe"
    assert [name for name, _ in config.states()] == ["/etc/criu/crun.conf", "/etc/criu/runc.conf"]
    assert (folder / "runc.conf").stat().st_mode & 0o7777 == 0o640
    config.uninstall()
    assert _tree(host) == before


@pytest.mark.root
def test_file_keeps_its_owner_when_it_is_merged(host: Path, config: CriuConfig) -> None:
    (host / "etc/criu").mkdir()
    path = host / "etc/criu/runc.conf"
    path.touch()
    os.chown(path, 12, 34)
    config.install(SCRIPT)
    assert (path.stat().st_uid, path.stat().st_gid) == (12, 34)


def test_nothing_is_written_when_one_of_the_files_is_not_understood(
    host: Path, config: CriuConfig
) -> None:
    (host / "etc/criu").mkdir()
    (host / "etc/criu/runc.conf").write_text("[runc]\n")
    (host / "etc/criu/crun.conf").touch()
    before = _tree(host)
    with pytest.raises(AdapterError, match=r"/etc/criu/runc\.conf on the host: line 1 is not an"):
        config.install(SCRIPT)
    config.uninstall()
    assert _tree(host) == before


def test_lines_stay_when_somebody_changed_them(host: Path, config: CriuConfig) -> None:
    config.install(SCRIPT)
    path = host / "etc/criu/runc.conf"
    path.write_text(path.read_text().replace("action-script", "tcp-close\naction-script"))
    before = _tree(host)
    with pytest.raises(AdapterError, match="by hand"):
        config.uninstall()
    assert _tree(host) == before


@pytest.mark.parametrize("linked", ["etc/criu", "etc/criu/runc.conf"])
def test_links_are_refused_since_they_lead_elsewhere_on_the_host(
    linked: str, host: Path, config: CriuConfig
) -> None:
    elsewhere = host / "elsewhere"
    elsewhere.mkdir()
    if linked.endswith(".conf"):
        (host / "etc/criu").mkdir()
        (elsewhere / "file").touch()
        elsewhere /= "file"
    (host / linked).symlink_to(elsewhere)
    before = _tree(host)
    with pytest.raises(AdapterError, match="link"):
        config.install(SCRIPT)
    assert _tree(host) == before


def test_folder_is_refused_when_others_may_write_to_it(host: Path, config: CriuConfig) -> None:
    (host / "etc/criu").mkdir()
    (host / "etc/criu").chmod(0o775)
    with pytest.raises(AdapterError, match="criu may be changed by others than user"):
        config.install(SCRIPT)


def test_states_say_absent_when_nothing_is_there(config: CriuConfig) -> None:
    assert config.states() == (("/etc/criu/runc.conf", Absent()),)
