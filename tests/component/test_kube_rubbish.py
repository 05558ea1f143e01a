"""Answers that are valid HTTP and no sense: the client says so, and nothing else breaks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.adapters.kube import KubeApi, connect
from dra_driver.errors import AdapterError
from dra_driver.sim.api_faults import Fault
from dra_driver.sim.api_server import SimApiServer
from tests import builders
from tests.contract.kube_suite import RealClock, deadline

DEEP = "[" * 5000 + "]" * 5000
LONG = "9" * 5000
SLICE = {"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}, "spec": {"pool": {}}}


@pytest.fixture
def server() -> Iterator[SimApiServer]:
    with SimApiServer() as server:
        server.create_node(builders.NODE)
        yield server


@pytest.fixture
def api(server: SimApiServer, tmp_path: Path) -> Iterator[KubeApi]:
    api = connect(
        kubeconfig=server.write_kubeconfig(tmp_path / "kubeconfig"),
        driver=builders.DRIVER,
        node=builders.NODE,
        clock=RealClock(),
    )
    yield api
    api.close()


@pytest.mark.parametrize("value", [DEEP, LONG])
def test_claim_read_fails_at_once_when_a_user_wrote_what_cannot_be_parsed(
    server: SimApiServer, api: KubeApi, value: str
) -> None:
    # Opaque parameters are the user's: the API server keeps them as they are.
    body = f'{{"kind": "ResourceClaim", "spec": {{"x": {value}}}}}'.encode()
    server.faults.add(Fault(resource="resourceclaims", status=200, raw=body, times=100))

    with pytest.raises(
        AdapterError, match=r"get ResourceClaim team-a/claim-1 .*parameters"
    ) as told:
        api.claims.get_claim("team-a", "claim-1", deadline(30.0))

    assert told.value.permanent
    assert len(server.requests()) == 1


def test_claim_read_fails_at_once_when_a_user_wrote_a_field_twice(
    server: SimApiServer, api: KubeApi
) -> None:
    body = b'{"kind": "ResourceClaim", "spec": {"parameters": {"qos": "a", "x": 1, "qos": "b"}}}'
    server.faults.add(Fault(resource="resourceclaims", status=200, raw=body, times=100))
    with pytest.raises(AdapterError, match="field qos stands twice in one object") as told:
        api.claims.get_claim("team-a", "claim-1", deadline(30.0))
    assert told.value.permanent
    assert len(server.requests()) == 1


@pytest.mark.parametrize("value", ["\u00b2", "9" * 400, "-1", "soon"])
def test_busy_server_is_reported_when_its_pause_is_no_number(
    server: SimApiServer, api: KubeApi, value: Any
) -> None:
    server.faults.add(Fault(resource="nodes", status=503, retry_after_s=value))

    with pytest.raises(AdapterError, match="503"):
        api.probe.node_uid()


@pytest.mark.parametrize(
    "items",
    [
        None,
        "abc",
        [None],
        [{}],
        [{"metadata": {}}],
        [SLICE, {**SLICE, "metadata": "x"}],
        [{**SLICE, "spec": "x"}],
        [{**SLICE, "spec": {"pool": "x"}}],
        [{**SLICE, "spec": {"pool": {"generation": "abc"}}}],
        [{**SLICE, "spec": {"pool": {}, "devices": [None]}}],
    ],
)
def test_list_fails_when_its_items_are_no_slices(
    server: SimApiServer, api: KubeApi, items: Any
) -> None:
    body = {"metadata": {"resourceVersion": "5"}, "items": items}
    server.faults.add(Fault(resource="resourceslices", status=200, raw=json.dumps(body).encode()))

    if items is None:
        assert api.slices.list_slices() == ((), "5")
        return
    with pytest.raises(
        AdapterError, match=r"list ResourceSlices .* (no ResourceSlice|has no metadata)"
    ):
        api.slices.list_slices()


@pytest.mark.parametrize("body", [{}, {"metadata": "x"}, {"metadata": None}, {"metadata": {}}])
def test_list_fails_when_it_has_no_version(
    server: SimApiServer, api: KubeApi, body: dict[str, Any]
) -> None:
    server.faults.add(
        Fault(resource="resourceslices", status=200, raw=json.dumps({**body, "items": []}).encode())
    )

    with pytest.raises(AdapterError, match=r"list ResourceSlices .*resourceVersion"):
        api.slices.list_slices()


@pytest.mark.parametrize("body", [{}, {"metadata": {"name": "a"}}, {**SLICE, "spec": "x"}])
def test_write_fails_when_the_answer_is_no_slice(
    server: SimApiServer, api: KubeApi, body: dict[str, Any]
) -> None:
    answer = json.dumps(body).encode()
    server.faults.add(Fault(resource="resourceslices", status=200, raw=answer, times=2))

    with pytest.raises(AdapterError, match=r"create .*(no ResourceSlice|has no metadata)"):
        api.slices.create_slice(SLICE)
    with pytest.raises(AdapterError, match=r"replace .*(no ResourceSlice|has no metadata)"):
        api.slices.replace_slice("a", SLICE)


@pytest.mark.parametrize("body", [{}, {"metadata": None}, {"metadata": {"uid": 5}}])
def test_node_is_not_known_when_the_answer_has_no_uid(
    server: SimApiServer, api: KubeApi, body: dict[str, Any]
) -> None:
    server.faults.add(Fault(resource="nodes", status=200, raw=json.dumps(body).encode()))

    with pytest.raises(AdapterError, match=r"get Node node-a.*uid"):
        api.probe.node_uid()


@pytest.mark.parametrize(
    "event",
    [
        "{}",
        '{"type": "ADDED"}',
        '{"type": "ADDED", "object": null}',
        '{"type": "ADDED", "object": {"metadata": "x"}}',
        '{"type": "DELETED", "object": {"metadata": {}}}',
        '{"type": null, "object": {"metadata": {"name": "a"}}}',
        '{"type": "BOOKMARK", "object": {"metadata": "x"}}',
        '{"type": "ERROR", "object": [1]}',
        '{"type": "ERROR", "object": {"code": "abc"}}',
        '{"type": "ERROR", "object": {"code": 404, "details": [1]}}',
        '{"kind": "Status", "code": 500}',
    ],
)
def test_watch_breaks_when_an_event_makes_no_sense(
    server: SimApiServer, api: KubeApi, event: str
) -> None:
    raw = event.encode() + b"\n"
    server.faults.add(Fault(verb="watch", resource="resourceslices", status=200, raw=raw))

    with pytest.raises(AdapterError, match="watch ResourceSlices"):
        list(api.slices.watch_slices("1", 1.0))
