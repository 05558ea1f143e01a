"""The harness itself: what tests on a real API server rely on."""

import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError

import psutil
import pytest

from tests.kube.client import ApiError, Json
from tests.kube.harness import DEFAULT, GATES, ApiServer
from tests.kube.objects import (
    create_node,
    create_service_account,
    grant_cluster_role,
    service_account_token,
)
from tests.kube.process import NotReadyError, wait_until

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def shareable_slice(name: str, *, node: str) -> Json:
    policy = {"default": "80Gi", "validRange": {"min": "256Mi", "max": "80Gi", "step": "1Mi"}}
    device = {
        "name": "gpu-0",
        "attributes": {"type": {"string": "gpu"}},
        "capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}},
        "allowMultipleAllocations": True,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "gpuslice.io",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        },
    }


def test_api_server_keeps_shared_capacity_when_gates_are_on(api_gates: ApiServer) -> None:
    sent = shareable_slice("kept", node="node-kept")
    api_gates.admin.create(SLICES, sent)
    assert api_gates.admin.get(f"{SLICES}/kept")["spec"] == sent["spec"]


def test_api_server_drops_shared_capacity_when_gates_are_off(api_default: ApiServer) -> None:
    sent = shareable_slice("dropped", node="node-dropped")
    api_default.admin.create(SLICES, sent)
    device = api_default.admin.get(f"{SLICES}/dropped")["spec"]["devices"][0]
    assert device == {
        "name": "gpu-0",
        "attributes": {"type": {"string": "gpu"}},
        "capacity": {"memory": {"value": "80Gi"}},
    }


def test_service_account_has_its_rights_only_when_granted(api_default: ApiServer) -> None:
    admin, names = api_default.admin, {"namespace": "kube-system", "name": "driver"}
    create_node(admin, "node-rights")
    create_service_account(admin, **names)
    token = service_account_token(admin, **names, node="node-rights")
    driver = api_default.client(token)

    with pytest.raises(ApiError, match="403 Forbidden"):
        driver.list(SLICES)
    rule = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list"]}
    grant_cluster_role(
        admin, name="driver", rules=[rule], namespace="kube-system", service_account="driver"
    )
    driver.list(SLICES)

    review = driver.create(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    node = review["status"]["userInfo"]["extra"]["authentication.kubernetes.io/node-name"]
    assert node == ["node-rights"]


def test_objects_stay_when_the_api_server_comes_back_with_other_gates(tmp_path: Path) -> None:
    with ApiServer(tmp_path, DEFAULT) as server:
        node = create_node(server.admin, "node-upgrade")
        before = server.admin
        server.stop_api()
        with pytest.raises(URLError, match="refused"):
            before.get("/version")

        server.start_api(profile=GATES)
        assert before.get("/api/v1/nodes/node-upgrade") == node
        sent = shareable_slice("after", node="node-upgrade")
        assert before.create(SLICES, sent)["spec"] == sent["spec"]


def test_no_process_stays_when_the_server_was_left(tmp_path: Path) -> None:
    children = psutil.Process().children
    earlier = {process.pid for process in children()}
    started = time.monotonic()
    with ApiServer(tmp_path) as server:
        assert time.monotonic() - started < 60
        assert server.admin.get("/version")["gitVersion"] == "v1.34.4"
        mine = [process for process in children() if process.pid not in earlier]
        assert len(mine) == 2
    assert not any(process.is_running() for process in mine)


def test_no_process_stays_when_the_test_process_was_killed(tmp_path: Path) -> None:
    program = """
import pathlib, sys, psutil
from tests.kube.harness import ApiServer
with ApiServer(pathlib.Path(sys.argv[1])):
    print(*(child.pid for child in psutil.Process().children()), flush=True)
    sys.stdin.read()
"""
    repository = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path],
        cwd=repository,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        servers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(servers) == 2
    wait_until(lambda: ", ".join(filter(None, map(alive, servers))), waiting_for="the servers' end")


def alive(process: psutil.Process) -> str:
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else str(process.pid)
    except psutil.NoSuchProcess:
        return ""


def test_start_tells_what_it_waited_for_when_a_flag_is_refused(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as server:
        server.kill_api()
        with pytest.raises(NotReadyError) as refused:
            server.start_api(flags=["--no-such"])
        first, *_, last = str(refused.value).splitlines()
        assert first.startswith("kube-apiserver: ended with status 1 before /readyz")
        assert last == "Error: unknown flag: --no-such"

        server.start_api()
        server.admin.get("/version")
