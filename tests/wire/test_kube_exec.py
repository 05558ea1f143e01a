"""Programs in pods over a real connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from dra_driver.adapters.kube_caller import CallerApi, connect_caller
from dra_driver.adapters.kube_exec import ExecEnd, PodAddress
from dra_driver.errors import AdapterError, Forbidden, SettingsError
from tests.fakes.exec_stream import ExecStream
from tests.fakes.people_cluster import Command, PeopleCluster, plugin_pod

POD = PodAddress(namespace="gpuslice", name="gpuslice-plugin-node-a", container="plugin")
BYTES = bytes(range(256)) * 4096


@pytest.fixture
def cluster() -> Iterator[PeopleCluster]:
    with PeopleCluster(pods=[plugin_pod()]).serving() as cluster:
        yield cluster


@pytest.fixture
def api(cluster: PeopleCluster, tmp_path: Path) -> Iterator[CallerApi]:
    api = connect_caller(kubeconfig=cluster.kubeconfig(tmp_path))
    yield api
    api.close()


def run(cluster: PeopleCluster, api: CallerApi, command: Command) -> ExecEnd:
    cluster.command = command
    return api.exec.run(POD, ("gpuslice", "a b", "ü"), silence_s=5.0)


def test_exec_gives_outputs_and_status(cluster: PeopleCluster, api: CallerApi) -> None:
    def command(arguments: list[str], stream: ExecStream) -> int:
        stream.output(b"one ")
        stream.errors("wrong")
        stream.output(b"two")
        return 7

    assert run(cluster, api, command) == ExecEnd(status=7, output=b"one two", errors="wrong")
    assert cluster.ran == [("node-a", ["a b", "ü"])]


def test_exec_streams_bytes_as_they_are(cluster: PeopleCluster, api: CallerApi) -> None:
    def command(arguments: list[str], stream: ExecStream) -> int:
        stream.output(BYTES)
        return 0

    cluster.command = command
    got: list[bytes] = []
    ended = api.exec.run(POD, ("gpuslice",), silence_s=5.0, sink=got.append)
    assert b"".join(got) == BYTES
    assert len(got) > 1
    assert ended == ExecEnd(status=0, output=b"", errors="")


def test_exec_keeps_a_mebibyte_where_nobody_takes_more(
    cluster: PeopleCluster, api: CallerApi
) -> None:
    def command(arguments: list[str], stream: ExecStream) -> int:
        stream.output(BYTES)
        stream.output(BYTES)
        return 0

    assert run(cluster, api, command).output == BYTES


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"status": "Failure", "message": "gpuslice: not found"}, "gpuslice: not found"),
        ({"status": "Failure"}, "it could not be started"),
        ([], "is not understood"),
        ({"status": "Failure", "details": {"causes": [{"reason": "ExitCode"}]}}, "not understood"),
    ],
)
def test_exec_says_why_a_program_did_not_run(
    cluster: PeopleCluster, api: CallerApi, status: object, text: str
) -> None:
    def command(arguments: list[str], stream: ExecStream) -> int:
        stream.status(status)
        return 0

    with pytest.raises(AdapterError, match=text):
        run(cluster, api, command)


def test_exec_does_not_take_a_lost_connection_for_an_end(
    cluster: PeopleCluster, api: CallerApi
) -> None:
    def command(arguments: list[str], stream: ExecStream) -> int:
        stream.output(b"half")
        stream.close()
        return 0

    with pytest.raises(AdapterError, match="the connection ended before the program"):
        run(cluster, api, command)


def test_exec_gives_up_a_silent_program(cluster: PeopleCluster, api: CallerApi) -> None:
    over = Event()

    def command(arguments: list[str], stream: ExecStream) -> int:
        over.wait(5.0)
        return 0

    cluster.command = command
    with pytest.raises(AdapterError, match=r"silent for 0\.2 s"):
        api.exec.run(POD, ("gpuslice",), silence_s=0.2)
    over.set()


def test_exec_tells_a_refusal_from_a_lost_server(
    cluster: PeopleCluster, api: CallerApi, tmp_path: Path
) -> None:
    cluster.denied.add("pods/exec")
    with pytest.raises(Forbidden, match='cannot use resource "pods/exec"'):
        api.exec.run(POD, ("gpuslice",), silence_s=5.0)
    cluster.url = "http://127.0.0.1:9"
    lost = connect_caller(kubeconfig=cluster.kubeconfig(tmp_path))
    with pytest.raises(AdapterError, match="no connection"):
        lost.exec.run(POD, ("gpuslice",), silence_s=5.0)
    lost.close()


def test_caller_takes_the_namespace_of_the_context(cluster: PeopleCluster, tmp_path: Path) -> None:
    file = cluster.kubeconfig(tmp_path, namespace="mine")
    assert connect_caller(kubeconfig=file).namespace == "mine"
    with pytest.raises(SettingsError, match="cannot be used"):
        connect_caller(kubeconfig=file, context="other")
    with pytest.raises(SettingsError, match="cannot be used"):
        connect_caller(kubeconfig=tmp_path / "none")
