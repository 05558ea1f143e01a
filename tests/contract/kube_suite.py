"""What this driver relies on of an API server, the same for the simulated and the real one."""

from __future__ import annotations

import itertools
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from dra_driver.adapters.kube import KubeApi, connect
from dra_driver.errors import AdapterError, Conflict, NotFound
from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline
from dra_driver.ports import Json, Watch
from tests import builders

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
NODES = "/api/v1/nodes"

Request = Callable[[str, str, Json | None], dict[str, Any]]
"""Method, path, body → answer; as an administrator."""

_numbers = itertools.count(1)


class RealClock:
    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_s(self) -> float:
        return time.time()


def deadline(after_s: float = 10.0) -> Deadline:
    return Deadline(time.monotonic() + after_s)


@dataclass(frozen=True, kw_only=True)
class ServerUnderTest:
    """One API server: how the driver reaches it, and an administrator beside it."""

    kubeconfig: Path
    admin: Request


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A server with a node of this test's own."""

    server: ServerUnderTest
    node: str
    node_uid: str
    api: KubeApi

    def body(self, name: str = "", *, devices: int = 1) -> dict[str, Any]:
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name} if name else {"generateName": f"00000-{self.node}-"},
            "spec": {
                "driver": builders.DRIVER,
                "nodeName": self.node,
                "pool": {"name": self.node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"gpu-{number}"} for number in range(devices)],
            },
        }


def cluster(server: ServerUnderTest) -> Cluster:
    node = f"contract-{next(_numbers)}-{time.monotonic_ns() % 10**6}"
    created = server.admin("POST", NODES, {"metadata": {"name": node}})
    api = connect(
        kubeconfig=server.kubeconfig, driver=builders.DRIVER, node=node, clock=RealClock()
    )
    return Cluster(server=server, node=node, node_uid=created["metadata"]["uid"], api=api)


class Follower:
    """Collects the events of a watch on a thread."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.events: list[Json] = []
        self.error: AdapterError | None = None
        self._thread = Thread(target=self._run, name="follower")
        self._thread.start()

    def wait_for(self, *kinds: str, timeout_s: float = 10.0) -> None:
        end = time.monotonic() + timeout_s
        while self.kinds() != list(kinds):
            assert time.monotonic() < end, f"saw {self.kinds()}, waited for {kinds}"
            self._thread.join(0.02)

    def kinds(self) -> list[str]:
        return [event["type"] for event in tuple(self.events) if event["type"] != "BOOKMARK"]

    def close(self) -> float:
        """Close the watch from here; seconds until its reader ended."""
        started = time.monotonic()
        self._watch.close()
        self._thread.join(10)
        assert not self._thread.is_alive()
        return time.monotonic() - started

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for event in self._watch:
                self.events.append(event)
        except AdapterError as error:
            self.error = error


class KubeContract:
    """Derive from it, with a fixture `server`."""

    @pytest.fixture
    def at(self, server: ServerUnderTest) -> Iterator[Cluster]:
        found = cluster(server)
        yield found
        for each in found.api.slices.list_slices()[0]:
            server.admin("DELETE", f"{SLICES}/{each['metadata']['name']}", None)
        found.api.close()

    def test_slices_are_listed_by_node_and_driver_when_others_publish(self, at: Cluster) -> None:
        first = at.api.slices.create_slice(at.body(f"b-{at.node}"))
        second = at.api.slices.create_slice(at.body(f"a-{at.node}"))
        foreign = at.body(f"c-{at.node}")
        foreign["spec"]["driver"] = "gpu.example.com"
        at.server.admin("POST", SLICES, foreign)
        listed, version = at.api.slices.list_slices()
        assert [_name(each) for each in listed] == [_name(second), _name(first)]
        assert int(version) >= int(first["metadata"]["resourceVersion"])
        at.server.admin("DELETE", f"{SLICES}/c-{at.node}", None)

    def test_create_generates_names_when_only_a_prefix_is_given(self, at: Cluster) -> None:
        one, two = (at.api.slices.create_slice(at.body()) for _ in range(2))
        assert _name(one) != _name(two)
        assert _name(one).startswith(f"00000-{at.node}"[:58])
        assert one["metadata"]["uid"]

    def test_create_is_a_conflict_when_the_name_is_taken(self, at: Cluster) -> None:
        at.api.slices.create_slice(at.body(f"x-{at.node}"))
        with pytest.raises(Conflict, match="already exists"):
            at.api.slices.create_slice(at.body(f"x-{at.node}"))

    def test_create_is_refused_for_good_when_the_slice_is_invalid(self, at: Cluster) -> None:
        body = at.body()
        body["spec"]["devices"] = [{"name": "Not A Label"}]
        with pytest.raises(AdapterError, match="422") as raised:
            at.api.slices.create_slice(body)
        assert raised.value.permanent

    def test_replace_is_a_conflict_when_the_version_is_old(self, at: Cluster) -> None:
        stored = at.api.slices.create_slice(at.body())
        body = {**at.body(devices=2), "metadata": stored["metadata"]}
        replaced = at.api.slices.replace_slice(_name(stored), body)
        assert len(replaced["spec"]["devices"]) == 2
        assert replaced["metadata"]["uid"] == stored["metadata"]["uid"]
        with pytest.raises(Conflict, match=_name(stored)):
            at.api.slices.replace_slice(_name(stored), {**body, "spec": at.body()["spec"]})

    def test_replace_changes_no_version_when_nothing_differs(self, at: Cluster) -> None:
        stored = at.api.slices.create_slice(at.body())
        again = at.api.slices.replace_slice(_name(stored), stored)
        assert again["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]

    def test_replace_is_not_found_when_the_slice_is_gone(self, at: Cluster) -> None:
        stored = at.api.slices.create_slice(at.body())
        at.server.admin("DELETE", f"{SLICES}/{_name(stored)}", None)
        with pytest.raises(NotFound):
            at.api.slices.replace_slice(_name(stored), stored)

    def test_delete_spares_the_slice_when_it_changed(self, at: Cluster) -> None:
        stored = at.api.slices.create_slice(at.body())
        body = {**at.body(devices=2), "metadata": stored["metadata"]}
        newer = at.api.slices.replace_slice(_name(stored), body)
        with pytest.raises(Conflict):
            _delete(at, stored)
        _delete(at, newer)
        assert at.api.slices.list_slices()[0] == ()
        _delete(at, newer)

    def test_watch_tells_every_change_when_it_starts_at_a_list(self, at: Cluster) -> None:
        _, version = at.api.slices.list_slices()
        watch = Follower(at.api.slices.watch_slices(version, 60))
        stored = at.api.slices.create_slice(at.body())
        body = {**at.body(devices=2), "metadata": stored["metadata"]}
        newer = at.api.slices.replace_slice(_name(stored), body)
        _delete(at, newer)
        watch.wait_for("ADDED", "MODIFIED", "DELETED")
        assert watch.close() < 2.0
        assert watch.error is None

    def test_watch_closes_at_once_when_nothing_happens(self, at: Cluster) -> None:
        watch = Follower(at.api.slices.watch_slices(at.api.slices.list_slices()[1], 60))
        assert watch.close() < 2.0
        assert watch.error is None
        assert watch.kinds() == []

    def test_watch_ends_by_itself_when_its_time_is_over(self, at: Cluster) -> None:
        watch = Follower(at.api.slices.watch_slices(at.api.slices.list_slices()[1], 1))
        watch.join()
        assert watch.error is None

    def test_dry_run_stores_nothing_when_it_succeeds(self, at: Cluster) -> None:
        assert at.api.probe.dry_run_slice(at.body())["spec"]["nodeName"] == at.node
        assert at.api.slices.list_slices()[0] == ()

    def test_node_uid_follows_the_node_when_it_is_created_again(self, at: Cluster) -> None:
        assert at.api.probe.node_uid() == at.node_uid
        at.server.admin("DELETE", f"{NODES}/{at.node}", None)
        with pytest.raises(NotFound, match=at.node):
            at.api.probe.node_uid()
        created = at.server.admin("POST", NODES, {"metadata": {"name": at.node}})
        assert at.api.probe.node_uid() == created["metadata"]["uid"] != at.node_uid

    def test_server_version_has_git_version_when_asked(self, at: Cluster) -> None:
        assert at.api.probe.server_version()["gitVersion"].startswith("v1.")

    def test_claim_is_read_whole_when_it_is_there(self, at: Cluster) -> None:
        name = f"claim-{at.node}"
        created = at.server.admin("POST", CLAIMS, _claim(name))
        assert at.api.claims.get_claim("default", name, deadline()) == created
        at.server.admin("DELETE", f"{CLAIMS}/{name}", None)
        with pytest.raises(NotFound, match=f"default/{name}"):
            at.api.claims.get_claim("default", name, deadline())

    def test_event_is_written_once_when_it_is_repeated(self, at: Cluster) -> None:
        claim = ClaimRef("default", f"claim-{at.node}", builders.claim_uid(1))
        for _ in range(3):
            at.api.events.emit(claim, reason="StepFailed", text="it failed" * 200)
        path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={claim.name}"
        (event,) = at.server.admin("GET", path, None)["items"]
        assert event["reason"] == "StepFailed"
        assert event["type"] == "Warning"
        assert event["involvedObject"]["uid"] == claim.uid
        assert event["source"] == {"component": builders.DRIVER, "host": at.node}
        assert len(event["message"]) == 1024


def sim_admin(url: str) -> Request:
    """Talk to the simulated server without this driver's own client."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def request(method: str, path: str, body: Json | None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(url + path, data=data, method=method)
        with opener.open(asked, timeout=10) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    return request


def _claim(name: str) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "slice.gpuslice.io"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }


def _delete(at: Cluster, stored: Json) -> None:
    metadata = stored["metadata"]
    at.api.slices.delete_slice(
        metadata["name"], uid=metadata["uid"], resource_version=metadata["resourceVersion"]
    )


def _name(stored: Json) -> str:
    return str(stored["metadata"]["name"])
