"""The client of the API server when the server, or the way to it, misbehaves."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from dra_driver.adapters.kube import KubeApi, connect
from dra_driver.errors import AdapterError, Forbidden, NotFound, SettingsError
from dra_driver.model.claim import ClaimRef, PodRef
from dra_driver.sim.api_faults import Fault
from dra_driver.sim.api_server import SimApiServer
from tests import builders
from tests.component.publishing import wait_until
from tests.contract.kube_suite import RealClock, deadline

CLAIM = builders.ref(1)


@pytest.fixture
def server() -> Iterator[SimApiServer]:
    with SimApiServer() as server:
        server.create("resourceclaims", builders.claim_json(1), namespace=CLAIM.namespace)
        yield server


@pytest.fixture
def api(server: SimApiServer, tmp_path: Path) -> Iterator[KubeApi]:
    api = reach(server.write_kubeconfig(tmp_path / "kubeconfig"))
    yield api
    api.close()


def reach(kubeconfig: Path | None) -> KubeApi:
    return connect(
        kubeconfig=kubeconfig, driver=builders.DRIVER, node=builders.NODE, clock=RealClock()
    )


def get(api: KubeApi, after_s: float = 10.0) -> Any:
    return api.claims.get_claim(CLAIM.namespace, CLAIM.name, deadline(after_s))


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=500, times=3),
        Fault(status=429, retry_after_s=1),
        Fault(status=503, reason="ServiceUnavailable", retry_after_s=1),
        Fault(reset=True, times=2),
        Fault(status=401, reason="Unauthorized", times=4),
        Fault(status=200, raw=b"<html>sign in</html>"),
        Fault(status=404, raw=b"404 page not found"),
        Fault(status=404, reason="NotFound", times=2),
        Fault(status=200, raw=b'{"kind": "Status", "status": "Failure", "message": "no"}'),
        Fault(status=200, raw=b"[]"),
    ],
    ids=lambda fault: f"{fault.status}-{fault.reason}",
)
def test_claim_is_read_when_the_failure_passes(
    server: SimApiServer, api: KubeApi, fault: Fault
) -> None:
    server.faults.add(fault)
    started = time.monotonic()
    assert get(api)["metadata"]["uid"]
    assert server.faults.pending() == 0
    if fault.retry_after_s:
        assert time.monotonic() - started >= fault.retry_after_s


def test_claim_is_read_when_one_request_hangs(server: SimApiServer, api: KubeApi) -> None:
    server.faults.add(Fault(delay_s=60.0))
    started = time.monotonic()
    assert get(api, 20.0)["metadata"]["uid"]
    assert time.monotonic() - started < 8.0


def test_claim_is_read_when_the_server_comes_back_in_time(
    server: SimApiServer, api: KubeApi
) -> None:
    server.stop()
    answers: list[Any] = []
    reader = Thread(target=lambda: answers.append(get(api, 20.0)), name="reader")
    reader.start()
    reader.join(0.5)
    assert reader.is_alive()
    server.start()
    reader.join(10)
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault(status=500, times=1000), "500 InternalError: injected by a fault"),
        (Fault(delay_s=60.0, times=1000), "no answer"),
        (Fault(status=503, retry_after_s=30, times=1000), "503"),
    ],
    ids=["500", "hang", "retry-after"],
)
def test_claim_read_ends_with_its_cause_when_the_deadline_passes(
    server: SimApiServer, api: KubeApi, fault: Fault, text: str
) -> None:
    server.faults.add(fault)
    started = time.monotonic()
    with pytest.raises(AdapterError, match=text) as raised:
        get(api, 1.5)
    assert time.monotonic() - started < 2.0
    assert f"get ResourceClaim team-a/claim-1 at {server.url}" in str(raised.value)
    assert not raised.value.permanent


@pytest.mark.parametrize("status", [400, 403, 405, 422])
def test_claim_read_fails_at_once_when_the_server_refuses(
    server: SimApiServer, api: KubeApi, status: int
) -> None:
    server.faults.add(Fault(status=status, reason="No", times=1000))
    with pytest.raises(AdapterError, match=f"{status} No") as raised:
        get(api)
    assert raised.value.permanent
    assert len(server.requests()) == 1
    assert isinstance(raised.value, Forbidden) is (status == 403)
    assert not isinstance(raised.value, NotFound)


def test_claim_is_definitely_gone_only_when_the_server_names_it(
    server: SimApiServer, api: KubeApi
) -> None:
    server.delete("resourceclaims", CLAIM.name, namespace=CLAIM.namespace)
    with pytest.raises(NotFound):
        get(api)
    assert len(server.requests()) == 1
    server.faults.add(Fault(status=404, raw=b"404 page not found", times=1000))
    with pytest.raises(AdapterError) as raised:
        get(api, 1.0)
    assert not isinstance(raised.value, NotFound)


def test_event_is_given_up_quickly_when_the_server_hangs(
    server: SimApiServer, api: KubeApi
) -> None:
    server.faults.add(Fault(resource="events", delay_s=60.0))
    started = time.monotonic()
    api.events.emit(CLAIM, reason="StepFailed", text="it failed")
    assert time.monotonic() - started < 3.0
    api.events.emit(ClaimRef("b", "c", "d"), reason="StepFailed", text="it failed")
    assert len(server.list("events")) == 1


def test_event_about_a_pod_names_it_and_is_written_once(server: SimApiServer, api: KubeApi) -> None:
    pod = PodRef("web", "uid-1")
    for _ in range(2):
        api.pod_events.emit_pod("team-a", pod, reason="GPURestoreFailed", text="it was killed")
    api.pod_events.emit_pod("team-a", PodRef("db", ""), reason="GPURestoreFailed", text="so was it")

    web, db = sorted(server.list("events"), key=lambda each: each["message"])
    assert web["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "team-a",
        "name": "web",
        "uid": "uid-1",
    }
    assert "uid" not in db["involvedObject"]
    assert web["metadata"]["namespace"] == "team-a"


def test_token_is_read_again_when_it_was_rotated(server: SimApiServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    config = json.loads(path.read_text())
    config["users"][0]["user"] = {"tokenFile": str(token)}
    path.write_text(json.dumps(config))
    api = reach(path)
    get(api)
    token.write_text("new")
    server.faults.add(Fault(status=401, reason="Unauthorized"))
    get(api)
    assert [(each.authorization, each.status) for each in server.requests()] == [
        ("Bearer old", 200),
        ("Bearer old", 401),
        ("Bearer new", 200),
    ]
    api.close()


def test_loopback_is_reached_directly_when_a_proxy_is_set(
    server: SimApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    api = reach(server.write_kubeconfig(tmp_path / "kubeconfig"))
    assert get(api)["metadata"]["uid"]
    api.close()


@pytest.mark.parametrize(
    "content",
    [None, "", "{", "[]", "a", "clusters: []", "current-context: x\ncontexts: []"],
    ids=["missing", "empty", "malformed", "list", "text", "no-context", "unknown-context"],
)
def test_connect_names_the_flag_when_the_kubeconfig_is_unusable(
    content: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError, match="--kubeconfig") as raised:
        reach(path)
    assert str(path) in str(raised.value)


def test_connect_says_what_to_set_when_there_is_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SettingsError, match="set --kubeconfig, or run in a pod"):
        reach(None)


def test_client_is_imported_only_when_connecting() -> None:
    program = (
        "import sys, dra_driver.adapters.kube, dra_driver.loops.publisher\n"
        "late = {'kubernetes', 'urllib3', 'requests', 'tenacity'} & set(sys.modules)\n"
        "print(*late)"
    )
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"


def test_many_threads_read_at_once_when_pods_start_together(
    server: SimApiServer, api: KubeApi
) -> None:
    server.faults.add(Fault(delay_s=0.5, times=32))
    done: list[Any] = []
    readers = [
        Thread(target=lambda: done.append(get(api)), name=f"reader-{number}")
        for number in range(32)
    ]
    started = time.monotonic()
    for reader in readers:
        reader.start()
    wait_until(lambda: len(done) == 32)
    for reader in readers:
        reader.join()
    assert time.monotonic() - started < 3.0


def test_pod_is_read_by_name(server: SimApiServer, api: KubeApi) -> None:
    body = {"metadata": {"name": "web-0"}, "spec": {"containers": [{"name": "main"}]}}
    server.create("pods", body, namespace="team-a")
    assert api.pods.get_pod("team-a", "web-0", deadline(10.0))["spec"] == body["spec"]
    with pytest.raises(NotFound, match="get Pod team-a/web-1"):
        api.pods.get_pod("team-a", "web-1", deadline(10.0))
