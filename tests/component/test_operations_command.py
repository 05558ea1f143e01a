"""A person asks what hooks are at, and what failed."""

from __future__ import annotations

import json

from tests.component.people import Site, run, site
from tests.fakes.exec_stream import ExecStream
from tests.fakes.people_cluster import plugin_pod
from tests.fakes.people_node import PeopleNode, operation

__all__ = ["run", "site"]


def test_operations_of_all_nodes_are_listed(site: Site) -> None:
    site.cluster.pods += [plugin_pod("node-b")]
    site.node.operations += [
        operation(state="DELEGATED", remainingSeconds=12.4),
        operation("op-2", state="FAILED_KILLED", kind="RESTORE", message="no GPU"),
    ]
    ended = site.ask("operations")
    assert (ended.status, ended.err) == (0, "")
    _, *rows = (line.split() for line in ended.out.splitlines())
    assert [row[0] for row in rows] == ["node-a", "node-a", "node-b", "node-b"]
    assert rows[0][1:4] == ["op-1", "checkpoint", "delegated"]
    assert rows[0][4:6] == ["team/trainer", "main"]
    assert "12" in rows[0]
    assert rows[1][2:5] == ["restore", "failed", "killed"]
    assert rows[1][-2:] == ["no", "GPU"]
    assert site.node.called("ListOperations") == [{"unfinishedOrFailed": True}] * 2


def test_operation_that_failed_unhealthy_is_listed_with_the_way_out(site: Site) -> None:
    site.node.operations += [operation(state="FAILED_UNHEALTHY", acknowledged=True)]
    ended = site.ask("operations")
    assert "failed unhealthy, acknowledged" in ended.out
    assert ended.err == ""
    site.node.operations += [operation("op-2", state="FAILED_UNHEALTHY")]
    ended = site.ask("operations")
    assert len(ended.out.splitlines()) == 3
    assert '"acknowledge": true' in ended.err


def test_operations_of_one_node_and_namespace(site: Site) -> None:
    site.cluster.pods += [plugin_pod("node-b")]
    other = operation("op-2")
    other["target"] = {**other["target"], "podNamespace": "else"}
    site.node.operations += [operation(), other]
    ended = site.ask("operations", "--node", "node-b", "-n", "team", "--all", "--json")
    found = json.loads(ended.out)
    assert [(each["node"], each["operationId"]) for each in found["operations"]] == [
        ("node-b", "op-1")
    ]
    assert found["unknown"] == []
    assert site.node.called("ListOperations") == [{"unfinishedOrFailed": False}]


def test_nodes_that_cannot_be_asked_are_told(site: Site) -> None:
    site.cluster.pods += [plugin_pod("node-b")]
    silent = PeopleNode(site.node.root, refuse={"ListOperations": "UNAVAILABLE: starting"})
    answers = iter((site.node.command, silent.command))

    def command(arguments: list[str], stream: ExecStream) -> int:
        return next(answers)(arguments, stream)

    site.cluster.command = command
    ended = site.ask("operations")
    assert ended.status == 1
    assert ended.out == "No operation.\n"
    assert "UNAVAILABLE: starting" in ended.err


def test_operations_that_nobody_may_ask_for_are_an_error(site: Site) -> None:
    site.cluster.denied.add("pods/exec")
    ended = site.ask("operations")
    assert (ended.status, ended.out) == (1, "")
    assert "'create pods/exec'" in ended.err
    site.cluster.pods = []
    assert "no plugin's pod runs in namespace gpuslice" in site.ask("operations").err


def test_plugin_of_a_rolling_update_that_is_ready_is_asked(site: Site) -> None:
    old = plugin_pod(ready="True", name="old", creationTimestamp="2026-01-01T00:00:00Z")
    new = plugin_pod(ready="False", name="new", creationTimestamp="2026-01-02T00:00:00Z")
    gone = plugin_pod(
        name="gone",
        creationTimestamp="2026-01-03T00:00:00Z",
        deletionTimestamp="2026-01-04T00:00:00Z",
    )
    site.cluster.pods = [new, old, gone]
    assert site.ask("operations", "--json").status == 0
    assert site.cluster.entered == ["old"]


def test_socket_that_nobody_serves_is_named(site: Site) -> None:
    socket = site.folder / "none.sock"
    for arguments in (("operations", "--local"), ("hook", "ListOperations")):
        ended = site._run(*arguments, "--checkpoint-socket", str(socket))
        assert (ended.status, ended.out) == (1, "")
        assert f"no checkpoint service answers on {socket}" in ended.err
        assert "--checkpoint-hook true" in ended.err


def test_answer_of_another_release_is_told(site: Site) -> None:
    def command(arguments: list[str], stream: ExecStream) -> int:
        stream.output(b"hello")
        return 0

    site.cluster.command = command
    assert "is it another release?" in site.ask("operations").err
    site.cluster.command = _unknown
    assert "no such command 'hook'" in site.ask("operations").err


def _unknown(arguments: list[str], stream: ExecStream) -> int:
    stream.errors("gpuslice: no such command 'hook'; see gpuslice --help\n")
    return 2
