"""Where the binaries of etcd, the Kubernetes components and containerd come from."""

import os
import subprocess
from pathlib import Path

KUBERNETES_VERSION = "1.34.4"
MPS_VERSIONS = ("535.261.03", "550.163.01")
"""What hack/mps-daemons knows: without and with a check of who changes limits."""

_HACK = Path(__file__).parents[2] / "hack"


def kubernetes_versions() -> tuple[str, ...]:
    """Give the versions that can be built, oldest first."""
    return tuple(sorted(path.name for path in (_HACK / "kubernetes").iterdir() if path.is_dir()))


def kubernetes_binary(version: str = KUBERNETES_VERSION, *, whole_cluster: bool = False) -> Path:
    """Give the cached binary of that version; minutes when it has to be built first.

    It holds etcd and kube-apiserver, and all other components too if asked for a whole cluster.
    Progress of a build goes to this process's standard error.
    """
    flags = ["--all"] if whole_cluster else []
    return _built("kubernetes-build", "--kubernetes", version, *flags)


def containerd_folder() -> Path:
    """Give the cached folder with containerd, its shim and ctr; minutes when it has to be built."""
    return _built("containerd-build")


def criu_folder() -> Path:
    """Give the cached folder with criu and its plugins; half a minute when it has to be built."""
    return _built("criu-build")


def mps_driver_root(version: str) -> Path:
    """Give a cached folder with MPS of that version as a driver's root has it; seconds to fetch."""
    return _built("mps-daemons", version)


def cache_folder() -> Path:
    """Give the folder for what is built once, the same as the scripts of hack/ use."""
    if folder := os.environ.get("GPUSLICE_CACHE_DIR"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuslice"


def clusters_folder() -> Path:
    """Give the folder that holds a folder for each cluster, by name."""
    return cache_folder() / "clusters"


def _built(script: str, *arguments: str) -> Path:
    done = subprocess.run(
        [_HACK / script, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())
