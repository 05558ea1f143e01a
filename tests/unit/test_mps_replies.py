"""What the program nvidia-cuda-mps-control prints, as recorded from real daemons."""

from __future__ import annotations

import pytest

from dra_driver.adapters.mps_replies import (
    MemoryReply,
    MpsUnknownCommand,
    memory_of,
    percent_of,
    pids_of,
    reply_lines,
    server_status_of,
)
from dra_driver.errors import (
    AdapterError,
    MpsDenied,
    MpsGone,
    MpsServerNotFound,
    MpsUnverified,
)
from dra_driver.model.mps import ServerStatus

DENIED = (
    "Insufficient privileges for UID 65534. Control deamon settings can only be modified by the"
    " user started it or by the root user.\n"
)


def _lines(output: str, *, status: int = 0, errors: str = "") -> tuple[str, ...]:
    return reply_lines(status=status, output=output, errors=errors, daemon="GPU g")


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ("", ()),
        ("100.0\n", ("100.0",)),
        ("25.0\n25.0\n6G\n", ("25.0", "25.0", "6G")),
        ("15811\n15812\n", ("15811", "15812")),
    ],
)
def test_reply_is_lines_when_nothing_is_refused(output: str, lines: tuple[str, ...]) -> None:
    assert _lines(output) == lines


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ('Unknown command "get_server_status"\n', MpsUnknownCommand),
        ('Unknown command "foo"\n', MpsUnknownCommand),
        ("Server 1 not found\n", MpsServerNotFound),
        ("Server 1 not found\nServer 1 not found!\n1\n", MpsServerNotFound),
        ("Server not found\n", MpsServerNotFound),
        (DENIED, MpsDenied),
        ("25.0\n" + DENIED, MpsDenied),
        (
            "Insufficient privileges for UID 1. Only the root user may start server for another user.\n",
            MpsDenied,
        ),
        ("Not enough privilege to execute quit command\n", MpsDenied),
    ],
)
def test_reply_raises_what_it_says_although_the_status_is_0(
    output: str, kind: type[AdapterError]
) -> None:
    with pytest.raises(kind, match="GPU g"):
        _lines(output)


def test_reply_says_gone_when_no_daemon_is_there() -> None:
    with pytest.raises(MpsGone, match="GPU g"):
        _lines("", status=1, errors="Cannot find MPS control daemon process\n")


def test_reply_tells_the_text_when_the_program_fails_in_another_way() -> None:
    with pytest.raises(AdapterError, match=r"status 127\): no such library") as caught:
        _lines("", status=127, errors="no such library\n")
    assert type(caught.value) is AdapterError
    assert not caught.value.permanent


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("6G", MemoryReply(mib=6144, floored=True)),
        ("512M", MemoryReply(mib=512, floored=False)),
        ("1M", MemoryReply(mib=1, floored=False)),
        ("17179869183G", MemoryReply(mib=17179869183 * 1024, floored=True)),
    ],
)
def test_memory_is_read_in_mib(line: str, reply: MemoryReply) -> None:
    assert memory_of(line) == reply


@pytest.mark.parametrize("line", ["", "6", "6K", "-5M", "1.5G", "6 G", "6Gi", "25.0"])
def test_memory_is_unverified_when_it_is_none(line: str) -> None:
    with pytest.raises(MpsUnverified):
        memory_of(line)


@pytest.mark.parametrize(
    ("line", "wanted_mib", "same"),
    [
        ("6G", 6144, True),
        ("6G", 6145, True),
        ("6G", 7167, True),
        ("6G", 7168, False),
        ("6G", 6143, False),
        ("5G", 6100, True),
        ("512M", 512, True),
        ("512M", 513, False),
        ("1M", 1536, False),
        ("17179869183G", 6144, False),
    ],
)
def test_memory_is_that_which_was_set_down_to_whole_gib(
    line: str, wanted_mib: int, *, same: bool
) -> None:
    assert memory_of(line).is_of(wanted_mib) is same


def test_percentage_is_a_number() -> None:
    assert percent_of("25.0") == 25
    assert percent_of("12.5") == 12.5
    with pytest.raises(MpsUnverified):
        percent_of("Invalid percentage, expected between (0.0, 100.0]")


def test_pids_are_refused_when_a_line_is_none() -> None:
    assert pids_of(("15811", "12")) == (15811, 12)
    with pytest.raises(AdapterError, match="Client"):
        pids_of(("15811", "Client 3"))


@pytest.mark.parametrize("status", list(ServerStatus))
def test_status_of_a_server_is_one_of_three_words(status: ServerStatus) -> None:
    assert server_status_of((status.value.upper(),)) is status


@pytest.mark.parametrize("lines", [(), ("RESTING",), ("100.0",)])
def test_status_of_a_server_is_refused_when_it_is_no_known_word(lines: tuple[str, ...]) -> None:
    with pytest.raises(AdapterError, match="status of an MPS server"):
        server_status_of(lines)
