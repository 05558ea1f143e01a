"""The driver in a cluster by its shipped manifests, as hack/cluster does it.

Needs the standard library only; the image is built by hack/image, which sets up what it needs.
"""

import os
import subprocess
from pathlib import Path

from tests.kube.cluster import Cluster

_ROOT = Path(__file__).parents[2]
_OVERLAY = _ROOT / "manifests" / "overlays" / "simulated"
_READY_S = 120


def ready_nodes() -> list[str]:
    """Names of simulated nodes that `--simulate` knows."""
    return sorted(file.stem for file in (_ROOT / "dra_driver/adapters/nodes").glob("*.yaml"))


def install(cluster: Cluster, *, simulate: str) -> None:
    """Build and load the image, apply the overlay for simulated GPUs, and wait for its Pod.

    Raises:
        CalledProcessError: the image cannot be built; hack/image has said why.
        NotReadyError: the driver is not ready in time.
    """
    archive = cluster.folder / "gpuslice-image.tar"
    subprocess.run(
        [_ROOT / "hack" / "image", "--output", archive], check=True, stdout=subprocess.DEVNULL
    )
    cluster.load_image(archive)
    cluster.kubectl("apply", "-k", str(_kustomization(cluster.folder / "driver", simulate)))
    cluster.kubectl(
        "rollout", "status", "--namespace=gpuslice", f"--timeout={_READY_S}s",
        "daemonset/gpuslice-plugin", timeout_s=_READY_S + 10.0,
    )  # fmt: skip


def _kustomization(folder: Path, simulate: str) -> Path:
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\n"
        "kind: Kustomization\n"
        f"resources: [{os.path.relpath(_OVERLAY, folder)}]\n"
        "configMapGenerator:\n"
        "- name: gpuslice-settings\n"
        "  namespace: gpuslice\n"
        "  behavior: replace\n"
        f'  literals: ["settings.yaml=simulate: {simulate}"]\n'
    )
    return folder
