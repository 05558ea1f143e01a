"""The checkpoint hook on a host that is a folder: installed, kept, and taken out again."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pytest

from dra_driver.adapters.criu_config import CriuConfig
from dra_driver.adapters.durable import DurableFolder
from dra_driver.adapters.hook_files import HookFiles
from dra_driver.app.hook_installer import HookInstaller
from dra_driver.sockets import only_process
from tests.fakes.recorder import FakeRecorder

TARGET = "/opt/gpuslice/bin/gpuslice-hook"
PLACE = TARGET[1:]
CONFIG = "etc/criu/runc.conf"


@dataclass
class Host:
    """A host's folder, the image's program, and what claims name."""

    root: Path
    named: bool = False
    recorder: FakeRecorder = field(default_factory=FakeRecorder)

    def __post_init__(self) -> None:
        for name in ("host/etc", "host/opt"):
            (self.root / name).mkdir(parents=True, mode=0o755)
        self.image("1")

    @property
    def files(self) -> list[str]:
        folder = self.root / "host"
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    def image(self, version: str) -> None:
        program = self.root / "program"
        program.write_text(f"#!/bin/sh\necho gpuslice-hook {version}\n")
        program.chmod(0o755)

    def installer(self, *, wanted: bool = True, state: str = "state") -> HookInstaller:
        host = self.root / "host"
        return HookInstaller(
            lambda: HookFiles(host_root=host, source=self.root / "program", owner=os.geteuid()),
            CriuConfig(host_root=host, owner=os.geteuid()),
            wanted=wanted,
            notes=DurableFolder(self.root / state, setting="--state-dir"),
            lock=self.root / "hook-install.lock",
            named=lambda path: self.named and path == TARGET,
            recorder=self.recorder,
            pause_s=0.0,
        )

    def look(self, *, wanted: bool = True, state: str = "state") -> HookInstaller:
        made = self.installer(wanted=wanted, state=state)
        made.look()
        return made

    @property
    def gauge(self) -> float:
        return self.recorder.gauges["hook_installed", ()]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_host_has_the_hook_when_it_is_wanted_and_nothing_of_it_when_it_no_longer_is(
    host: Host,
) -> None:
    installer = host.installer()
    assert (installer.path(), installer.installed()) == (None, False)
    installer.look()
    assert (installer.path(), installer.installed(), installer.problem()) == (TARGET, True, "")
    assert host.files == [CONFIG, PLACE]
    assert host.gauge == 1
    off = host.look(wanted=False)
    assert (off.path(), off.installed(), off.problem()) == (None, False, "")
    assert host.files == []
    assert host.gauge == 0


def test_program_stays_when_prepared_claims_name_it(host: Host) -> None:
    host.look()
    host.named = True
    off = host.look(wanted=False)
    assert host.files == [PLACE]
    assert "until claims" in off.problem()
    host.named = False
    off.look()
    assert (host.files, off.problem()) == ([], "")


def test_hook_of_another_plugin_stays_when_one_is_tried_out_beside_it(host: Host) -> None:
    host.look()
    host.look(wanted=False, state="another")
    assert host.files == [CONFIG, PLACE]


def test_hook_is_put_back_when_it_was_removed(host: Host) -> None:
    installer = host.look()
    for missing in (PLACE, CONFIG):
        (host.root / "host" / missing).unlink()
        installer.look()
        assert (host.files, installer.installed()) == ([CONFIG, PLACE], True)


def test_program_of_a_later_plugin_stays_when_the_older_one_looks(host: Host) -> None:
    older = host.look()
    host.image("2")
    host.look()
    host.image("1")
    older.look()
    assert "gpuslice-hook 2" in (host.root / "host" / PLACE).read_text()
    assert older.installed()


def test_specs_name_the_program_when_only_criu_cannot_be_told(host: Host) -> None:
    config = host.root / "host" / CONFIG
    config.parent.mkdir(mode=0o755)
    config.write_text(f"action-script {TARGET}\n")
    installer = host.look()
    assert (installer.path(), installer.installed()) == (TARGET, False)
    assert CONFIG in installer.problem()
    assert host.gauge == 0
    config.unlink()
    installer.look()
    assert installer.installed()


def test_specs_do_not_name_the_program_when_it_does_not_run(host: Host) -> None:
    (host.root / "program").write_text("#!/bin/sh\nexit 3\n")
    installer = host.look()
    assert (installer.path(), installer.installed()) == (None, False)
    assert "does not run" in installer.problem()


def test_nothing_is_changed_while_another_process_does(host: Host) -> None:
    with only_process(host.root / "hook-install.lock", what="tests"):
        installer = host.look()
        assert (host.files, installer.installed()) == ([], False)
    installer.look()
    assert installer.installed()


def test_change_is_told_when_the_hook_comes_while_it_is_looked_after(host: Host) -> None:
    stop, told = Event(), []

    def changed() -> None:
        told.append(installer.installed())
        stop.set()

    installer = host.installer()
    installer.run(stop, changed)
    assert told == [True]
