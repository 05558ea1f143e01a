"""What a cluster leaves on the machine: nothing, however it ends."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.build import KUBERNETES_VERSION
from tests.kube.cell import Cell, check_folder
from tests.kube.cluster import Cluster
from tests.kube.cluster_fixtures import end_orphans
from tests.kube.cluster_state import ClusterState
from tests.kube.daemons import ProcessId
from tests.kube.pods import busybox_pod, run_pod
from tests.kube.process import NotReadyError, wait_until
from tests.kube.profiles import GATES

pytestmark = pytest.mark.usefixtures("clusters_built")

# Everything here is written to by some part of Kubernetes, unless it is told otherwise.
_PLACES = ("/", "/etc", "/opt", "/run", "/usr/libexec", "/var/cache", "/var/lib", "/var/log")
_SETTINGS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "vm/overcommit_memory",
)
_UP = """
import sys
from pathlib import Path
from tests.kube.cluster import Cluster
with Cluster(Path(sys.argv[1])):
    print("up", flush=True)
    sys.stdin.read()
"""


def traces(folder: Path) -> frozenset[str]:
    """Give all that a cluster of this folder could change on the machine, a line each."""
    return frozenset(
        {
            *(f"process {line}" for line in _processes(folder)),
            *(f"mount {line.split()[4]}" for line in _lines("/proc/self/mountinfo")),
            *(f"interface {name}" for name in _interfaces(Cell(folder=folder).bridge)),
            *(f"cgroup {path}" for path in Cell(folder=folder).cgroups.folders()),
            *(f"rules of {line}" for line in _lines("/proc/net/ip_tables_names")),
            *(f"setting {name} {_lines(f'/proc/sys/{name}')}" for name in _SETTINGS),
            *(f"file {path}" for place in _PLACES for path in Path(place).iterdir()),
            *(f"file {path}" for path in (folder,) if path.exists()),
        }
    )


def left(folder: Path, before: frozenset[str]) -> frozenset[str]:
    """Give what a cluster has left on the machine.

    What is gone at a second look was an interface of another cluster, not on its bridge yet.
    """
    return (traces(folder) - before) & traces(folder)


def _processes(folder: Path) -> Iterator[str]:
    """Give the processes that name the folder or are of its cgroups.

    Without those that have ended and that init, to which they belong, has not looked at yet.
    """
    cgroup = Cell(folder=folder).cgroups.name
    for process in Path("/proc").glob("[0-9]*"):
        try:
            about = (process / "cmdline").read_text() + (process / "cgroup").read_text()
            ended = "State:\tZ" in (process / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if not ended and (f"{folder}/" in about or cgroup in about):
            yield process.name


def _interfaces(bridge: str) -> Iterator[str]:
    """Give the interfaces but for bridges of other clusters and what hangs on these."""
    for path in Path("/sys/class/net").iterdir():
        master = path / "master"
        of = master.resolve().name if master.exists() else path.name
        if of == bridge or not of.startswith(bridge[: len("gpuslice")]):
            yield path.name


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def test_down_leaves_nothing(cluster_folder: Path) -> None:
    before = traces(cluster_folder)
    with Cluster(cluster_folder, profile=GATES) as cluster:
        for name in ("one", "two"):
            run_pod(cluster.admin, busybox_pod(name))
        found = {line.split()[0] for line in traces(cluster_folder) - before}
    assert found == {"process", "interface", "cgroup", "file"}
    assert left(cluster_folder, before) == frozenset()


@pytest.mark.parametrize("moment", ["containerd", "kube-apiserver", "kubelet", "up"])
def test_down_leaves_nothing_when_who_started_it_was_killed(
    cluster_folder: Path, moment: str
) -> None:
    before = traces(cluster_folder)
    starter = subprocess.Popen(
        [sys.executable, "-c", _UP, cluster_folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with starter:
        if moment == "up":
            assert starter.stdout is not None
            assert starter.stdout.readline() == "up\n"
        else:
            record = cluster_folder / "processes" / moment
            wait_until(lambda: "" if record.exists() else "no record", waiting_for=moment)
        starter.send_signal(signal.SIGKILL)
    state = ClusterState.load(cluster_folder)
    assert state is not None
    assert state.orphaned
    end_orphans()
    assert left(cluster_folder, before) == frozenset()


def test_orphan_makes_way_for_a_cluster_of_the_same_folder(cluster_folder: Path) -> None:
    cluster_folder.mkdir(parents=True)
    ClusterState(
        version=KUBERNETES_VERSION,
        node_version=KUBERNETES_VERSION,
        profile="default",
        node_name="old",
        owner=ProcessId(pid=1, start_time=-1),
    ).save(cluster_folder)
    with Cluster(cluster_folder, node_name="new") as cluster:
        assert [node["metadata"]["name"] for node in cluster.admin.list("/api/v1/nodes")] == ["new"]


def test_failed_start_leaves_nothing_and_shows_the_log(cluster_folder: Path) -> None:
    before = traces(cluster_folder)
    with pytest.raises(NotReadyError, match=r"(?s)kubelet ended before .*command failed"):
        Cluster(cluster_folder, node_name="No Valid Name").up()
    assert left(cluster_folder, before) == frozenset()


@pytest.mark.parametrize("folder", ["/run/x", "/var/run/x", "/var/lib/x", "/etc", "/tmp/a,b"])
def test_folder_is_refused_when_a_cluster_cannot_live_there(folder: str) -> None:
    assert "choose another" in check_folder(Path(folder))
    assert check_folder(Path("/tmp/x")) == ""
