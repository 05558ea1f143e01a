"""Where the binary with etcd and the Kubernetes components comes from."""

import subprocess
from pathlib import Path

KUBERNETES_VERSION = "1.34.4"
_BUILD = Path(__file__).parents[2] / "hack" / "kubernetes-build"


def kubernetes_binary(version: str = KUBERNETES_VERSION) -> Path:
    """Give the cached binary of that version; minutes when it has to be built first.

    Progress of a build goes to this process's standard error.
    """
    done = subprocess.run(
        [_BUILD, "--kubernetes", version], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())
