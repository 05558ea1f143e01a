"""gpuslice-hook when the driver is away, hangs or says what it should not."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.native.hook import MARKER, Answer, Ended, FakeDriver, HookProgram, hang

STOPPED = b'{"ociVersion":"1.0.2","id":"c1","status":"stopped","pid":7}'
CREATING = b'{"ociVersion":"1.0.2","id":"c1","status":"creating","pid":7}'
CASES = {
    "dump with a GPU": 1,
    "dump without a GPU": 0,
    "dump of nothing": 0,
    "post-dump": 0,
    "network-unlock": 0,
    "pre-restore": 0,
    "post-restore": 0,
    "start": 0,
    "restore": 1,
    "end": 0,
}
"""Call → exit status where the driver does not answer."""


def _call(hook: HookProgram, case: str, path: Path) -> Ended:
    hook.proc.process(77, MARKER)
    hook.proc.process(78)
    runtime = {
        "start": ("createRuntime", CREATING),
        "restore": ("createRuntime", STOPPED),
        "end": ("poststop", STOPPED),
    }
    if case in runtime:
        name, state = runtime[case]
        return hook.run("--socket", path, "oci", name, stdin=state)
    pids = {"dump without a GPU": "78", "dump of nothing": "79"}
    action = "pre-dump" if case.startswith("dump ") else case
    return hook.script(action, "--socket", path, CRTOOLS_INIT_PID=pids.get(case, "77"))


def _flood(connection: socket.socket) -> None:
    with suppress(ConnectionError):
        while True:
            connection.sendall(b"\0" * 65536)


def _hang_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def _half_line(text: bytes) -> Answer:
    def answer(connection: socket.socket) -> None:
        connection.sendall(text)
        hang(connection)

    return answer


@contextmanager
def _nobody(kind: str, path: Path) -> Iterator[None]:
    match kind:
        case "a file":
            path.write_text("OK\n")
        case "a folder":
            path.mkdir()
        case "a stale socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
        case "a link to itself":
            path.symlink_to(path)
        case _:
            assert kind == "nothing"
    yield


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "kind", ["nothing", "a file", "a folder", "a stale socket", "a link to itself"]
)
def test_hook_decides_alone_when_the_socket_is(
    kind: str, case: str, hook: HookProgram, tmp_path: Path
) -> None:
    with _nobody(kind, tmp_path / "s"):
        ended = _call(hook, case, tmp_path / "s")
    _check(ended, case)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "answer",
    [_hang_up, b"", b"OK", b"ok\n", b"OK \n", b"\n", b"VET", b"VETOED\n", b"OK\r\n", _flood],
    ids=lambda answer: repr(answer) if isinstance(answer, bytes) else answer.__name__,
)
def test_hook_decides_alone_when_the_driver_says(
    answer: Answer, case: str, hook: HookProgram, tmp_path: Path
) -> None:
    with FakeDriver(tmp_path / "s", answer) as driver:
        ended = _call(hook, case, driver.path)
    _check(ended, case)


@pytest.mark.parametrize("case", CASES)
def test_hook_ends_when_the_driver_hangs(case: str, impatient: HookProgram, tmp_path: Path) -> None:
    with FakeDriver(tmp_path / "s", hang) as driver:
        ended = _call(impatient, case, driver.path)
    _check(ended, case)


@pytest.mark.parametrize("action", ["pre-dump", "post-dump", "network-unlock"])
@pytest.mark.parametrize(
    ("pid", "patience_ms"), [("78", 200), ("79", 200), ("77", 300), ("80", 300)]
)
def test_hook_waits_briefly_when_the_container_shows_no_claim(
    pid: str, patience_ms: int, action: str, impatient: HookProgram, tmp_path: Path
) -> None:
    impatient.proc.process(77, MARKER)
    impatient.proc.process(78)
    impatient.proc.process(80)
    unreadable = impatient.proc.root / "80" / "mountinfo"
    unreadable.unlink()
    unreadable.mkdir()
    with FakeDriver(tmp_path / "s", hang) as driver:
        ended = impatient.script(action, "--socket", driver.path, CRTOOLS_INIT_PID=pid)
    refused = action == "pre-dump" and patience_ms == 300
    assert ended.status == refused
    assert f"within {400 if refused else patience_ms} ms" in ended.text


@pytest.mark.parametrize("text", [b"OK", b"V", b"VETO because"])
def test_hook_ends_when_the_driver_hangs_within_a_line(
    text: bytes, impatient: HookProgram, tmp_path: Path
) -> None:
    with FakeDriver(tmp_path / "s", _half_line(text)) as driver:
        ended = _call(impatient, "dump with a GPU", driver.path)
    assert ended.status == 1
    assert "gave no answer within 400 ms" in ended.text


def test_hook_ends_when_the_driver_accepts_no_connection(
    impatient: HookProgram, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(tmp_path / "s"))
        listener.listen(0)
        first.connect(str(tmp_path / "s"))
        assert _call(impatient, "restore", tmp_path / "s").status == 1


@pytest.mark.parametrize("manner", ["--block-signal=ALRM", "--ignore-signal=ALRM"])
def test_hook_ends_when_its_parent_wanted_no_alarm(
    manner: str, impatient: HookProgram, tmp_path: Path
) -> None:
    command = ("env", manner, impatient.path, "--socket", tmp_path / "s")
    with FakeDriver(tmp_path / "s", hang):
        ended = impatient.run_command(command, environment={"CRTOOLS_SCRIPT_ACTION": "pre-dump"})
    assert "gave no answer within 200 ms" in ended.text


def test_hook_ends_when_stdin_never_does(impatient: HookProgram) -> None:
    command = ("sh", "-c", 'sleep 60 | { "$0" oci createRuntime; echo "status $?"; kill 0; }')
    ended = impatient.run_command(("setsid", "-w", *command, impatient.path))
    assert "status 0" in ended.text
    assert "gave no answer within 300 ms" in ended.text


def test_hook_ends_when_its_messages_are_not_read(hook: HookProgram, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb"), os.fdopen(writer, "wb", buffering=0) as pipe:
        os.set_blocking(writer, False)
        while pipe.write(b"x" * 4096):
            pass
        os.set_blocking(writer, True)
        with FakeDriver(tmp_path / "s", b"VETO unheard\n") as driver:
            command = [str(hook.path), "--socket", str(driver.path)]
            environment = {"CRTOOLS_SCRIPT_ACTION": "pre-dump"}
            ended = subprocess.run(command, stderr=pipe, env=environment, timeout=60, check=False)
    assert ended.returncode == 1


def test_hook_takes_the_word_when_the_driver_refuses_before_it_has_read_all(
    hook: HookProgram, tmp_path: Path
) -> None:
    def refuse(connection: socket.socket) -> None:
        connection.recv(16)
        connection.sendall(b"VETO too much\n")
        connection.shutdown(socket.SHUT_RDWR)

    with FakeDriver(tmp_path / "s", refuse) as driver:
        stdin = STOPPED.ljust(65536)
        ended = hook.run("--socket", driver.path, "oci", "createRuntime", stdin=stdin)
    assert (ended.status, "too much" in ended.text) == (1, True)


@pytest.mark.parametrize("case", set(CASES) - {"start"})
@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (b"VETO\n", ""),
        (b"VETO \n", ""),
        (b"VETO why\nOK\n", "why"),
        (b"VETO cut sho", "cut sho"),
        (b"VETO \x1b[2J\0\r\x7f%s%n\n", "?[2J???%s%n"),
        (b"VETO " + b"x" * 100_000 + b"\n", "x" * 1019),
    ],
)
def test_hook_refuses_when_the_driver_does(
    answer: bytes, shown: str, case: str, hook: HookProgram, tmp_path: Path
) -> None:
    with FakeDriver(tmp_path / "s", answer) as driver:
        ended = _call(hook, case, driver.path)
    assert ended.status == 1
    assert ended.text.endswith(f": refused by the driver: {shown}\n")


@pytest.mark.parametrize("kind", ["a folder", "a link to itself"])
def test_hook_refuses_when_it_cannot_tell_whether_a_gpu_is_held(
    kind: str, hook: HookProgram, tmp_path: Path
) -> None:
    hook.proc.process(80)
    mounts = hook.proc.root / "80" / "mountinfo"
    mounts.unlink()
    with _nobody(kind, mounts):
        ended = hook.script("pre-dump", "--socket", tmp_path / "s", CRTOOLS_INIT_PID="80")
    assert ended.status == 1


def test_hook_decides_alone_when_the_socket_s_path_is_too_long(hook: HookProgram) -> None:
    _check(_call(hook, "restore", Path("/" + "x" * 5000)), "restore")


def _check(ended: Ended, case: str) -> None:
    assert ended.status == CASES[case], ended.text
    if case == "start":
        assert ended.text == ""
        return
    text = "refusing, as a GPU's state would be lost" if ended.status else "going on without it"
    assert text in ended.text
    assert ended.text.count("\n") == 1
