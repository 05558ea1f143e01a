from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as all_threads
from time import monotonic

import grpc
import pytest

from dra_driver.kubelet.probe import probe_sockets
from dra_driver.sim.kubelet import FakeKubelet
from tests.builders import DRIVER, ref
from tests.waiting import eventually
from tests.wire.plugin import (
    TIMEOUT_S,
    Plugin,
    channel,
    get_info,
    kubelet_times,
    paths_in,
    prepare,
    prepare_later,
)

GOOD, NEXT = ref(1), ref(2)


def test_stop_lets_a_call_finish_and_refuses_new_ones(root: Path) -> None:
    plugin = Plugin(root).start()
    with channel(plugin.paths.dra) as opened:
        gate = plugin.operations.gate(GOOD.uid)
        call = prepare_later(opened, GOOD)
        assert gate.entered.wait(TIMEOUT_S)
        with _stopping(plugin) as stopped:
            eventually(lambda: not plugin.paths.registration.exists(), TIMEOUT_S, "its withdrawal")
            with pytest.raises(grpc.RpcError) as refused:
                prepare(opened, NEXT)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "shutting down" in str(refused.value.details())
            assert not call.done()
            gate.open.set()
            assert call.result(timeout=TIMEOUT_S).claims[GOOD.uid].devices
        assert stopped == [True]
    assert plugin.operations.calls == [("prepare", GOOD)]
    assert not plugin.paths.dra.exists()


def test_stop_tells_the_caller_when_a_call_outlives_the_grace(root: Path) -> None:
    plugin = Plugin(root).start()
    with channel(plugin.paths.dra) as opened:
        gate = plugin.operations.gate(GOOD.uid)
        call = prepare_later(opened, GOOD)
        assert gate.entered.wait(TIMEOUT_S)
        assert not plugin.stop(grace_s=0.1)
        assert call.exception(timeout=TIMEOUT_S) is not None
        gate.open.set()
    assert not plugin.paths.dra.exists()
    assert not plugin.paths.registration.exists()


def test_stop_cuts_the_grace_when_told_to_hurry(root: Path) -> None:
    plugin = Plugin(root).start()
    hurry = Event()
    with channel(plugin.paths.dra) as opened:
        gate = plugin.operations.gate(GOOD.uid)
        call = prepare_later(opened, GOOD)
        assert gate.entered.wait(TIMEOUT_S)
        with _stopping(plugin, grace_s=60.0, now=hurry) as stopped:
            eventually(lambda: not plugin.paths.registration.exists(), TIMEOUT_S, "its withdrawal")
            started_s = monotonic()
            hurry.set()
        assert monotonic() - started_s < 2.0
        assert stopped == [False]
        assert call.exception(timeout=TIMEOUT_S) is not None
        gate.open.set()


def test_stop_fails_calls_that_wait_for_a_node_that_will_not_come(root: Path) -> None:
    plugin = Plugin(root, ready=False).start()
    with channel(plugin.paths.dra) as opened:
        call = prepare_later(opened, GOOD)
        eventually(lambda: plugin.server._calls._running, TIMEOUT_S, "a waiting call")
        started_s = monotonic()
        assert plugin.stop()
        assert monotonic() - started_s < 5.0
        assert "stopping" in call.result(timeout=TIMEOUT_S).claims[GOOD.uid].error


def test_stop_ends_all_threads(root: Path) -> None:
    before = set(all_threads())
    plugin = Plugin(root).start()
    with channel(plugin.paths.dra) as opened:
        prepare(opened, GOOD, NEXT)
        get_info(plugin.paths.registration)
    plugin.stop()
    eventually(
        lambda: {each for each in set(all_threads()) - before if each.is_alive()} == set(),
        TIMEOUT_S,
        "the end of all threads",
    )


def test_kubelet_calls_the_neighbour_when_one_of_two_instances_stops(root: Path) -> None:
    old = Plugin(root, pod_uid="6f0e1c2d-0000-4000-8000-00000000000a").start()
    wipes: list[int] = []
    times = kubelet_times()
    with FakeKubelet(root, wipe=lambda: wipes.append(1), times=times) as kubelet:
        assert old.registered.wait(TIMEOUT_S)
        new = Plugin(root, pod_uid="6f0e1c2d-0000-4000-8000-00000000000b").start()
        assert new.registered.wait(TIMEOUT_S)
        eventually(
            lambda: kubelet.endpoint(DRIVER).details.endpoint == str(new.paths.dra),
            TIMEOUT_S,
            "the newest endpoint",
        )
        old.stop()
        eventually(lambda: len(kubelet.endpoints(DRIVER)) == 1, TIMEOUT_S, "one endpoint")
        assert kubelet.endpoint(DRIVER).details.endpoint == str(new.paths.dra)
        new.stop()
        eventually(lambda: len(wipes) == 2, TIMEOUT_S, "the wipe after the last connection")


def test_process_finishes_its_call_and_exits_0_when_terminated(root: Path) -> None:
    with _process(root, grace_s=20.0, hold=True) as process:
        with channel(paths_in(root).dra) as opened:
            call = prepare_later(opened, GOOD)
            eventually((root / "entered").exists, TIMEOUT_S, "the call")
            process.send_signal(signal.SIGTERM)
            eventually(
                lambda: not paths_in(root).registration.exists(), TIMEOUT_S, "its withdrawal"
            )
            (root / "open").touch()
            assert call.result(timeout=TIMEOUT_S).claims[GOOD.uid].error == ""
        assert process.wait(TIMEOUT_S) == 0
    assert not paths_in(root).dra.exists()


def test_process_ends_promptly_when_terminated_twice_with_a_call_held(root: Path) -> None:
    with (
        _process(root, grace_s=120.0, hold=True) as process,
        channel(paths_in(root).dra) as opened,
    ):
        call = prepare_later(opened, GOOD)
        eventually((root / "entered").exists, TIMEOUT_S, "the call")
        process.send_signal(signal.SIGTERM)
        eventually(lambda: not paths_in(root).registration.exists(), TIMEOUT_S, "its withdrawal")
        started_s = monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_S)
        assert monotonic() - started_s < 3.0
        assert call.exception(timeout=TIMEOUT_S) is not None


def test_next_process_replaces_the_sockets_when_the_last_was_killed(root: Path) -> None:
    paths = paths_in(root)
    with FakeKubelet(root, wipe=lambda: None, times=kubelet_times()) as kubelet:
        with _process(root, grace_s=1.0) as first:
            eventually(kubelet.tries, TIMEOUT_S, "registration")
            first.kill()
            first.wait(TIMEOUT_S)
        assert paths.registration.is_socket()
        assert paths.dra.is_socket()
        assert probe_sockets(paths, timeout_s=1.0)
        with _process(root, grace_s=1.0):
            eventually(
                lambda: [each.error for each in kubelet.tries()] == ["", ""],
                TIMEOUT_S,
                "a second registration",
            )
            assert probe_sockets(paths, timeout_s=1.0) == ""


def test_edge_imports_nothing_slow() -> None:
    # GetInfo is due within 1 s of the socket's appearance, on a node that is still booting.
    program = (
        "import sys, dra_driver.kubelet.server, dra_driver.kubelet.probe;"
        "print(sorted({m.partition('.')[0] for m in sys.modules}"
        " & {'kubernetes', 'pynvml', 'opentelemetry', 'pydantic', 'typer', 'yaml'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@contextmanager
def _stopping(
    plugin: Plugin, *, grace_s: float = 30.0, now: Event | None = None
) -> Iterator[list[bool]]:
    results: list[bool] = []
    thread = Thread(target=lambda: results.append(plugin.stop(grace_s=grace_s, now=now)))
    thread.start()
    try:
        yield results
    finally:
        thread.join(TIMEOUT_S)


@contextmanager
def _process(
    root: Path, *, grace_s: float, hold: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A driver of its own process, up and serving."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.wire.process", str(root), str(grace_s), str(int(hold))]
    )
    try:
        eventually(
            lambda: probe_sockets(paths_in(root), timeout_s=1.0) == "", TIMEOUT_S, "a process"
        )
        yield process
    finally:
        process.kill()
        process.wait()
