"""The cluster itself: what tests of the driver on a real node rely on."""

from pathlib import Path

import pytest

from tests.kube.build import KUBERNETES_VERSION, kubernetes_binary
from tests.kube.client import ApiError, Json
from tests.kube.cluster import COMPONENTS, Cluster
from tests.kube.cluster_fixtures import NEWEST_VERSION
from tests.kube.pods import busybox_pod, delete_pod, run_pod, wait_for_pod, wait_for_success
from tests.kube.process import NotReadyError, wait_until
from tests.kube.profiles import GATES

CLUSTERS = ("cluster_default", "cluster_gates", "cluster_newest")


@pytest.fixture(params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each of the clusters in turn."""
    running: Cluster = request.getfixturevalue(request.param)
    return running


def test_pod_runs_and_its_logs_and_commands_work_through_the_api(cluster: Cluster) -> None:
    pod = busybox_pod("plain", command=("sh", "-c", "echo from inside; exec sleep 1000"))
    status = run_pod(cluster.admin, {**pod})["status"]
    assert status["hostIP"] == cluster.state.addresses.node
    wait_until(
        lambda: "" if (log := cluster.kubectl("logs", "plain")) == "from inside\n" else repr(log),
        waiting_for="what the pod says",
    )
    assert cluster.kubectl("exec", "plain", "--", "echo", "hello") == "hello\n"
    assert cluster.kubectl("exec", "-i", "plain", "--", "cat", stdin="through") == "through"
    healthy = cluster.admin.text(f"/api/v1/nodes/{cluster.node_name}/proxy/healthz")
    assert healthy == "ok"


def test_pod_reaches_the_api_server_as_its_service_account(cluster: Cluster) -> None:
    binary = kubernetes_binary(cluster.version, whole_cluster=True)
    pod = busybox_pod("in-cluster", command=("/tools/kubernetes", "kubectl", "auth", "whoami"))
    tools = {"name": "tools", "hostPath": {"path": str(binary.parent)}}
    pod["spec"]["volumes"] = [tools]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "tools", "mountPath": "/tools"}]
    run_pod(cluster.admin, pod)
    wait_for_success(cluster.admin, "in-cluster")
    assert "system:serviceaccount:default:default" in cluster.kubectl("logs", "in-cluster")


def test_versions_are_those_that_were_asked_for(cluster_newest: Cluster) -> None:
    node = cluster_newest.admin.get(f"/api/v1/nodes/{cluster_newest.node_name}")
    assert node["status"]["nodeInfo"]["kubeletVersion"] == f"v{NEWEST_VERSION}"
    assert cluster_newest.admin.get("/version")["gitVersion"] == f"v{NEWEST_VERSION}"


@pytest.mark.parametrize(
    ("cluster", "shared"),
    [("cluster_default", "dropped"), ("cluster_gates", "kept"), ("cluster_newest", "kept")],
    indirect=["cluster"],
)
def test_profile_decides_what_the_server_keeps(cluster: Cluster, shared: str) -> None:
    assert keeps_shared_devices(cluster) is (shared == "kept")


def keeps_shared_devices(cluster: Cluster) -> bool:
    device = {"name": "gpu-0", "allowMultipleAllocations": True}
    stored = cluster.admin.create(
        "/apis/resource.k8s.io/v1/resourceslices",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "probe"},
            "spec": {
                "driver": "probe.example.com",
                "allNodes": True,
                "pool": {"name": "probe", "generation": 1, "resourceSliceCount": 1},
                "devices": [device],
            },
        },
        dryRun="All",
    )
    devices: list[Json] = stored["spec"]["devices"]
    return devices == [device]


def test_pods_stay_when_the_kubelet_restarts(cluster_gates: Cluster) -> None:
    admin, kubelet = cluster_gates.admin, cluster_gates.pid("kubelet")
    before = run_pod(admin, busybox_pod("stays"))["status"]["containerStatuses"]
    cluster_gates.restart_kubelet()
    assert cluster_gates.pid("kubelet") not in {None, kubelet}
    assert cluster_gates.kubectl("exec", "stays", "--", "echo", "hello") == "hello\n"
    assert wait_for_pod(admin, "stays")["status"]["containerStatuses"] == before


def test_pods_go_within_seconds_when_they_are_deleted(cluster_gates: Cluster) -> None:
    run_pod(cluster_gates.admin, busybox_pod("goes"))
    delete_pod(cluster_gates.admin, "goes", timeout_s=15.0)


def test_waiting_for_a_pod_says_why_it_does_not_run(cluster_gates: Cluster) -> None:
    pod = busybox_pod("nowhere", nodeSelector={"no-such": "label"})
    with pytest.raises(NotReadyError, match="FailedScheduling: 0/1 nodes are available"):
        run_pod(cluster_gates.admin, pod, timeout_s=3.0)


def test_failed_kubectl_raises_with_its_message(cluster_gates: Cluster) -> None:
    with pytest.raises(NotReadyError, match='pods "no-such-pod" not found'):
        cluster_gates.kubectl("get", "pod", "no-such-pod")


def test_control_plane_moves_to_another_version_under_a_running_pod(
    clusters_built: None, cluster_folder: Path
) -> None:
    with Cluster(cluster_folder, version=KUBERNETES_VERSION, profile=GATES) as cluster:
        before = run_pod(cluster.admin, busybox_pod("stays"))["status"]["containerStatuses"]
        kubelet, scheduler = cluster.pid("kubelet"), cluster.scheduler_pid()
        cluster.stop_api()
        with pytest.raises((OSError, ApiError)):
            cluster.admin.get("/version")
        cluster.start_api()
        cluster.upgrade_control_plane(NEWEST_VERSION)
        assert cluster.admin.get("/version")["gitVersion"] == f"v{NEWEST_VERSION}"
        run_pod(cluster.admin, busybox_pod("new"))
        assert wait_for_pod(cluster.admin, "stays")["status"]["containerStatuses"] == before
        assert cluster.pid("kubelet") == kubelet
        assert cluster.scheduler_pid() not in {None, scheduler}
        assert all(cluster.pid(component) for component in COMPONENTS)
