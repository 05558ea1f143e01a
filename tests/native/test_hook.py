"""What gpuslice-hook sends and how it takes the driver's answer."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from dra_driver.checkpoint.raw_line import Marker, Phase, RawHead
from tests.native.hook import MARKER, FakeDriver, HookProgram

CRIU_PHASES = [phase for phase in Phase if phase.role == "criu" and phase is not Phase.NETWORK_LOCK]


def _state(value: str = "stopped", **annotations: str) -> bytes:
    """As runc writes it."""
    state = {"ociVersion": "1.0.2", "id": "c1", "status": value, "pid": 7, "bundle": "/b"}
    return json.dumps({**state, "annotations": annotations}, separators=(",", ":")).encode()


def test_hook_sends_all_it_can_tell_when_criu_begins_to_dump(
    hook: HookProgram, tmp_path: Path
) -> None:
    hook.proc.process(77, MARKER, started=123456, name="a) S (b) 1")
    hook.proc.process(88, started=99)
    images = hook.proc.images(88, "/var/lib/ctr images/ä%\n")
    with FakeDriver(tmp_path / "s") as driver:
        ended = hook.script(
            "pre-dump", "--socket", driver.path, CRTOOLS_INIT_PID="77", CRTOOLS_IMAGE_DIR=images
        )
    assert (ended.status, ended.text) == (0, "")
    line = (
        b"GPUSLICE1 pre-dump role=criu pid=77 started=123456 criu=88 criu_started=99"
        b" images=/var/lib/ctr%20images/%C3%A4%25%0A marker=yes len=0\n"
    )
    assert driver.requests == [line]
    assert driver.decoded().head == RawHead(
        phase=Phase.PRE_DUMP,
        pid=77,
        started=123456,
        criu=88,
        criu_started=99,
        images="/var/lib/ctr images/ä%\n".encode(),
        marker=Marker.YES,
    )


@pytest.mark.parametrize("phase", CRIU_PHASES)
def test_hook_asks_when_criu_comes_to(phase: Phase, hook: HookProgram, tmp_path: Path) -> None:
    with FakeDriver(tmp_path / "s", b"VETO not now\n") as driver:
        ended = hook.script(phase, "--socket", driver.path)
    assert driver.decoded().head.phase == phase
    assert ended.status == 1
    assert ended.text == f"gpuslice-hook: {phase}: refused by the driver: not now\n"


@pytest.mark.parametrize(
    "action", ["network-lock", "setup-namespaces", "", "pre-dumpx", "x" * 10000]
)
def test_hook_passes_without_asking_when_the_action_is_none_of_ours(
    action: str, hook: HookProgram, tmp_path: Path
) -> None:
    with FakeDriver(tmp_path / "s", b"VETO\n") as driver:
        assert hook.script(action, "--socket", driver.path).status == 0
    assert driver.requests == []


@pytest.mark.parametrize(
    "mount", [f"{MARKER}s", MARKER[:-1], f"/x{MARKER}", "/run/gpuslice", f"{MARKER}/x"]
)
def test_hook_sees_no_marker_when_a_mount_is_only_alike(
    mount: str, hook: HookProgram, tmp_path: Path
) -> None:
    hook.proc.process(77, mount)
    with FakeDriver(tmp_path / "s") as driver:
        hook.script("pre-dump", "--socket", driver.path, CRTOOLS_INIT_PID="77")
    assert driver.decoded().head.marker == Marker.NO


def test_hook_sees_the_marker_when_it_is_one_of_thousands(
    hook: HookProgram, tmp_path: Path
) -> None:
    hook.proc.process(77, *(f"/{number:08}" * 50 for number in range(3000)), MARKER, "/last")
    with FakeDriver(tmp_path / "s") as driver:
        hook.script("pre-dump", "--socket", driver.path, CRTOOLS_INIT_PID="77")
    assert driver.decoded().head.marker == Marker.YES


@pytest.mark.parametrize("pid", ["", "0x4d", "77 ", "-77", "../77", "9" * 5000, "78"])
def test_hook_names_no_process_when_the_environment_names_none(
    pid: str, hook: HookProgram, tmp_path: Path
) -> None:
    hook.proc.process(77)
    with FakeDriver(tmp_path / "s") as driver:
        hook.script("pre-dump", "--socket", driver.path, CRTOOLS_INIT_PID=pid)
    assert driver.decoded().head == RawHead(phase=Phase.PRE_DUMP, marker=Marker.NO)


@pytest.mark.parametrize(
    "images", ["", "/", "/proc/88/fd/9/..", "/proc/88/fd/", "/etc/88/fd/9", "/proc/8888/fd/9"]
)
def test_hook_names_no_images_when_the_folder_is_not_criu_s(
    images: str, hook: HookProgram, tmp_path: Path
) -> None:
    hook.proc.process(88)
    hook.proc.images(88, "/images")
    with FakeDriver(tmp_path / "s") as driver:
        hook.script("pre-restore", "--socket", driver.path, CRTOOLS_IMAGE_DIR=images)
    assert driver.decoded().head == RawHead(phase=Phase.PRE_RESTORE)


def test_hook_leaves_the_images_out_when_their_path_is_too_long(
    hook: HookProgram, tmp_path: Path
) -> None:
    hook.proc.process(88)
    images = hook.proc.images(88, "/" + " " * 2000)
    with FakeDriver(tmp_path / "s") as driver:
        hook.script("post-dump", "--socket", driver.path, CRTOOLS_IMAGE_DIR=images)
    head = driver.decoded().head
    assert (head.criu, head.images) == (88, None)


@pytest.mark.parametrize(("phase", "status"), [("createRuntime", "stopped"), ("poststop", "x")])
def test_hook_passes_the_state_on_when_a_runtime_calls(
    phase: str, status: str, hook: HookProgram, tmp_path: Path
) -> None:
    state = _state(status, text="ä\0\n\\")
    arguments = ("--claim", "uid-1", "oci", phase)
    with FakeDriver(tmp_path / "s") as driver:
        ended = hook.run("--socket", driver.path, *arguments, stdin=state)
    assert (ended.status, ended.text) == (0, "")
    head = RawHead(phase=Phase(phase), claim="uid-1", length=len(state))
    assert (driver.decoded().head, driver.decoded().body) == (head, state)


@pytest.mark.parametrize(
    "state",
    [
        _state("creating"),
        _state("created", status="stopped"),
        b'{"status":"running","x":{"status":"stopped"}}',
        b'{"status":"stoppedx"}',
        b'{"status":"stopped',
        b'{"status":',
        b'{"status"',
        b'{"id":"\\"status\\":\\"stopped\\""}',
        b"",
        b"\0" * 70000,
        b'"status"'.rjust(65536),
        b'"status": '.rjust(65536),
        b'"status":"'.rjust(65536),
        b'"status":"stopped'.rjust(65536),
    ],
)
def test_hook_passes_without_asking_when_a_container_starts(
    state: bytes, hook: HookProgram, tmp_path: Path
) -> None:
    with FakeDriver(tmp_path / "s", b"VETO\n") as driver:
        ended = hook.run("--socket", driver.path, "oci", "createRuntime", stdin=state)
    assert (ended.status, driver.requests) == (0, [])


@pytest.mark.parametrize(
    "state",
    [_state("stopped", status="created"), b'{ "status" : "stopped" }', b'"status":\n\t"stopped"'],
)
def test_hook_asks_when_a_container_is_restored(
    state: bytes, hook: HookProgram, tmp_path: Path
) -> None:
    with FakeDriver(tmp_path / "s", b"VETO\n") as driver:
        ended = hook.run("--socket", driver.path, "oci", "createRuntime", stdin=state)
    assert (ended.status, len(driver.requests)) == (1, 1)


@pytest.mark.parametrize("extra", [0, 1, 500_000])
def test_hook_marks_a_state_as_cut_when_it_is_longer_than_64_kib_by(
    extra: int, hook: HookProgram, tmp_path: Path
) -> None:
    state = _state().ljust(65536 + extra)
    with FakeDriver(tmp_path / "s") as driver:
        ended = hook.run("--socket", driver.path, "oci", "createRuntime", stdin=state)
    assert ended.status == 0
    assert driver.decoded().head.cut == (extra > 0)
    assert driver.decoded().body == state[:65536]


def test_hook_works_when_it_is_given_no_open_file(hook: HookProgram, tmp_path: Path) -> None:
    environment = {"CRTOOLS_SCRIPT_ACTION": "pre-dump"}
    command = ("sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', hook.path, "--socket", tmp_path / "s")
    for answer, status in ((b"OK\n", 0), (b"VETO\n", 1)):
        with FakeDriver(tmp_path / "s", answer) as driver:
            assert hook.run_command(command, environment=environment).status == status
        assert driver.decoded().head.phase == Phase.PRE_DUMP
        (tmp_path / "s").unlink()


def test_hook_writes_messages_nowhere_else_when_stderr_is_closed(
    hook: HookProgram, tmp_path: Path
) -> None:
    heard: list[bytes] = []

    def refuse(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"VETO\n")
        heard.append(connection.recv(65536))

    command = ("sh", "-c", 'exec "$0" "$@" 2>&-', hook.path, "--socket", tmp_path / "s")
    with FakeDriver(tmp_path / "s", refuse):
        hook.run_command(command, environment={"CRTOOLS_SCRIPT_ACTION": "pre-dump"})
    assert heard == [b""]


def test_hook_finds_the_socket_by_the_link_beside_it_when_no_argument_names_one(
    hook: HookProgram, tmp_path: Path
) -> None:
    program = tmp_path / "gpuslice-hook"
    program.hardlink_to(hook.path)
    (tmp_path / "gpuslice-hook.socket").symlink_to(tmp_path / "s")
    with FakeDriver(tmp_path / "s", b"VETO found\n"):
        ended = hook.run_command((program,), environment={"CRTOOLS_SCRIPT_ACTION": "post-dump"})
    assert "found" in ended.text


def test_hook_prints_its_version(hook: HookProgram) -> None:
    assert hook.run("--version").text == "gpuslice-hook unknown GPUSLICE1\n"


@pytest.mark.parametrize(
    "arguments",
    [(), ("oci",), ("oci", "prestart"), ("--socket",), ("--bogus", "x"), ("createRuntime",), ("",)],
)
def test_hook_explains_itself_when_its_arguments_are_wrong(
    arguments: tuple[str, ...], hook: HookProgram
) -> None:
    ended = hook.run(*arguments)
    assert ended.status == 2
    assert ended.text.startswith("usage: gpuslice-hook ")
