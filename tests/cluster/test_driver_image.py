"""The driver's image, as the DaemonSet runs it."""

from pathlib import Path

from dra_driver import __version__
from tests.kube.cluster import Cluster
from tests.kube.images import write_base_images
from tests.kube.pods import busybox_pod, run_pod, wait_for_pod


def test_image_has_the_command_and_all_that_it_imports(
    cluster_gates: Cluster, driver_image: Path
) -> None:
    cluster_gates.load_image(driver_image)
    pod = busybox_pod("command")
    pod["spec"]["containers"] = [{"name": "main", "image": "gpuslice:dev", "args": ["version"]}]
    run_pod(cluster_gates.admin, pod)
    wait_for_pod(cluster_gates.admin, "command")
    assert __version__ in cluster_gates.kubectl("logs", "command")


def test_archive_has_the_same_bytes_when_it_is_written_again(tmp_path: Path) -> None:
    first = write_base_images(tmp_path).read_bytes()
    assert write_base_images(tmp_path).read_bytes() == first
