"""The driver's image, as the DaemonSet runs it."""

from pathlib import Path

from dra_driver import __version__
from tests.kube.cluster import Cluster
from tests.kube.images import write_base_images
from tests.kube.pods import busybox_pod, run_pod, wait_for_success


def test_image_has_the_command_and_all_that_it_imports(deployed_gates: Cluster) -> None:
    pod = busybox_pod("command")
    pod["spec"]["containers"] = [{"name": "main", "image": "gpuslice:dev", "args": ["version"]}]
    run_pod(deployed_gates.admin, pod)
    wait_for_success(deployed_gates.admin, "command")
    assert __version__ in deployed_gates.kubectl("logs", "command")


def test_archive_has_the_same_bytes_when_it_is_written_again(tmp_path: Path) -> None:
    first = write_base_images(tmp_path).read_bytes()
    assert write_base_images(tmp_path).read_bytes() == first
