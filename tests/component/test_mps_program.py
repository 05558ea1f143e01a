"""What is written to daemons and made of their replies, with a program that plays the replies.

Servers need a GPU: their replies are those of the vendor's manual and of the program's own texts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.mps_control import ControlProgram, ProgramControl
from dra_driver.adapters.mps_processes import Processes
from dra_driver.adapters.mps_servers import ProgramServers
from dra_driver.errors import (
    AdapterError,
    MpsGone,
    MpsHung,
    MpsServerNotFound,
    MpsUnverified,
    NotFound,
)
from dra_driver.model.mps import MpsLimits, MpsServer, ServerStatus
from tests.builders import uuid

GPU = uuid(0)
LIMITS = MpsLimits(compute_percent=25, memory_mib=6144)
_SCRIPT = """#!/bin/sh
cd {folder}
n=$(ls asked | wc -l)
cat >asked/$n
[ -e replies/$n ] || {{ echo "Cannot find MPS control daemon process" >&2; exit 1; }}
cat replies/$n
"""
UNKNOWN = 'Unknown command "get_server_status"\n'


class Player:
    """A program that gives one reply after the other, then finds no daemon."""

    def __init__(self, folder: Path, *replies: str) -> None:
        self._folder = folder
        for name in ("asked", "replies"):
            (folder / name).mkdir()
        for number, reply in enumerate(replies):
            (folder / f"replies/{number}").write_text(reply)
        program = folder / "nvidia-cuda-mps-control"
        program.write_text(_SCRIPT.format(folder=folder))
        program.chmod(0o755)
        programs = DriverPrograms(driver_root=folder / "none", run_dir=folder, control_path=program)
        self._program = ControlProgram(programs, run_dir=folder, timeout_s=60.0)
        self.control = ProgramControl(self._program)
        self.servers = ProgramServers(self._program, Processes())

    def asked(self) -> list[list[str]]:
        paths = sorted((self._folder / "asked").iterdir(), key=lambda path: int(path.name))
        return [path.read_text().splitlines() for path in paths]


def test_limits_are_written_as_numbers_of_mib_for_ordinal_0_and_read_back(tmp_path: Path) -> None:
    player = Player(tmp_path, "25.0\n25.0\n6G\n", "25.0\n25.0\n6G\n")
    player.control.set_limits(GPU, LIMITS, 15811)
    assert player.asked() == [
        [
            "set_default_active_thread_percentage 25",
            "set_default_device_pinned_mem_limit 0 6144M",
            "get_default_active_thread_percentage",
            "get_default_device_pinned_mem_limit 0",
        ],
        [
            "set_active_thread_percentage 15811 25",
            "set_device_pinned_mem_limit 15811 0 6144M",
            "get_active_thread_percentage 15811",
            "get_device_pinned_mem_limit 15811 0",
        ],
    ]


def test_no_command_about_memory_is_written_without_a_ceiling(tmp_path: Path) -> None:
    player = Player(tmp_path, "25.0\n25.0\n")
    player.control.set_limits(GPU, MpsLimits(compute_percent=25), None)
    assert not [line for line in player.asked()[0] if line.startswith("set") and "mem" in line]


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("30.0\n30.0\n6G\n", "30.0 % of compute"),
        ("25.0\n25.5\n6G\n", "25.5 % of compute"),
        ("25.0\n25.0\n5G\n", "5G of memory"),
        ("25.0\n25.0\n6000M\n", "6000M of memory"),
        ("25.0\n25.0\n", "no limit of memory"),
        ("", "no % of compute"),
    ],
)
def test_other_limits_than_were_set_are_told(tmp_path: Path, reply: str, text: str) -> None:
    with pytest.raises(MpsUnverified, match=text):
        Player(tmp_path, reply).control.set_limits(GPU, LIMITS, None)


def test_limits_of_a_server_are_verified_too(tmp_path: Path) -> None:
    player = Player(tmp_path, "25.0\n25.0\n6G\n", "25.0\n25.0\n8G\n")
    with pytest.raises(MpsUnverified, match="8G of memory for server 15811"):
        player.control.set_limits(GPU, LIMITS, 15811)


def test_quit_waits_until_the_daemon_answers_no_more(tmp_path: Path) -> None:
    player = Player(tmp_path, "", "100.0\n", "100.0\n")
    player.control.quit(GPU, force_after_s=2.5)
    assert [lines[0] for lines in player.asked()] == [
        "quit -t 3",
        *["get_default_active_thread_percentage"] * 3,
    ]


def test_server_is_started_for_a_user(tmp_path: Path) -> None:
    player = Player(tmp_path, "", "Failed to start server using uid 7. No such user\n")
    player.servers.start(GPU, uid=1000)
    assert player.asked() == [["start_server -uid 1000"]]
    with pytest.raises(AdapterError, match="No such user"):
        player.servers.start(GPU, uid=7)


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ("ACTIVE\n", ServerStatus.ACTIVE),
        ("INITIALIZING\n", ServerStatus.INITIALIZING),
        ("FAULT\n", ServerStatus.FAULT),
        (UNKNOWN, ServerStatus.ACTIVE),
    ],
)
def test_server_has_the_status_that_its_daemon_tells(
    tmp_path: Path, reply: str, status: ServerStatus
) -> None:
    player = Player(tmp_path, "999999999\n", reply)
    assert player.servers.find(GPU) == MpsServer(pid=999999999, status=status)
    assert player.asked() == [["get_server_list"], ["get_server_status 999999999"]]


def test_server_that_ends_between_two_questions_is_not_found(tmp_path: Path) -> None:
    player = Player(tmp_path, "999999999\n", "Server 999999999 not found\n")
    assert player.servers.find(GPU) is None


def test_newest_of_several_servers_is_found(tmp_path: Path) -> None:
    """The parent of all processes is older than this one."""
    player = Player(tmp_path, "1\n999999999\n", "ACTIVE\n")
    found = player.servers.find(GPU)
    assert found is not None
    assert found.pid == 1


def test_clients_are_sorted(tmp_path: Path) -> None:
    player = Player(tmp_path, "30\n4\n", "")
    assert player.servers.clients(GPU, 7) == (4, 30)
    assert player.servers.clients(GPU, 7) == ()


def test_client_is_terminated_when_the_daemon_says_0(tmp_path: Path) -> None:
    player = Player(tmp_path, "0\n")
    player.servers.terminate(GPU, 7, 30)
    assert player.asked() == [["terminate_client 7 30"]]


@pytest.mark.parametrize(
    ("replies", "kind"),
    [
        (("Invalid process 30!\n1\n", "4\n"), NotFound),
        (("1\n", "4\n30\n"), AdapterError),
        (("Server 7 not found\nServer 7 not found!\n1\n",), MpsServerNotFound),
        ((), MpsGone),
    ],
)
def test_client_that_is_not_terminated_is_told(
    tmp_path: Path, replies: tuple[str, ...], kind: type[AdapterError]
) -> None:
    with pytest.raises(AdapterError) as caught:
        Player(tmp_path, *replies).servers.terminate(GPU, 7, 30)
    assert type(caught.value) is kind


def test_server_with_clients_does_not_stop_unless_forced(tmp_path: Path) -> None:
    busy = "Server 7 has 1 active worker threads. Server will not shutdown.\n"
    player = Player(tmp_path, busy, "")
    with pytest.raises(AdapterError, match="still has clients"):
        player.servers.stop(GPU, 7, force=False)
    player.servers.stop(GPU, 7, force=True)
    assert player.asked() == [["shutdown_server 7"], ["shutdown_server 7 -f"]]


def test_daemon_that_takes_too_long_is_hung(tmp_path: Path) -> None:
    program = tmp_path / "control"
    program.write_text("#!/bin/sh\nsleep 60\n")
    program.chmod(0o755)
    programs = DriverPrograms(driver_root=tmp_path, run_dir=tmp_path, control_path=program)
    control = ProgramControl(ControlProgram(programs, run_dir=tmp_path, timeout_s=0.2))
    with pytest.raises(MpsHung, match=r"no answer .* within 0.2 s"):
        control.limits(GPU)
