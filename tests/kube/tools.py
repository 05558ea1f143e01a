"""Command line tools of a cluster: kubectl for its API server and ctr for its containerd."""

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kube.cell import Cell
from tests.kube.components import CONTAINERD_SOCKET
from tests.kube.process import NotReadyError


def write_kubectl(target: Path, *, binary: Path, kubeconfig: Path) -> None:
    """Write a command that is kubectl for one cluster and keeps its cache beside itself."""
    cache = target.parent / "kubectl-cache"
    target.write_text(
        "#!/bin/sh\n"
        f"export KUBECONFIG={shlex.quote(str(kubeconfig))} NO_PROXY='*' no_proxy='*'\n"
        f"export KUBECACHEDIR={shlex.quote(str(cache))}\n"
        f'exec {shlex.quote(str(binary))} kubectl "$@"\n'
    )
    target.chmod(0o755)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ctr:
    """containerd's own client, run with the node's view of the files."""

    program: Path
    cell: Cell

    def import_images(self, archive: Path) -> None:
        """Import an archive, for the kubelet to find its images."""
        self._run("-n", "k8s.io", "images", "import", str(archive.absolute()))

    def tasks(self) -> dict[str, str]:
        """Give the states of the node's containers, by id, such as RUNNING and PAUSED."""
        lines = self._run("-n", "k8s.io", "tasks", "list").splitlines()[1:]
        return {fields[0]: fields[-1] for fields in map(str.split, lines)}

    def resume(self, container: str) -> None:
        """Let a paused container run on."""
        self._run("-n", "k8s.io", "tasks", "resume", container)

    def problem(self) -> str:
        """Say why containerd does not serve; it does if the answer is empty."""
        try:
            self._run("version")
        except NotReadyError as error:
            return str(error)
        return ""

    def _run(self, *arguments: str) -> str:
        command = (str(self.program), "--address", CONTAINERD_SOCKET, *arguments)
        return run(self.cell.inside(command))


def run(argv: Sequence[str], *, stdin: str | None = None, timeout_s: float = 120.0) -> str:
    """Run a command to its end and give its standard output.

    Raises:
        NotReadyError: it failed; with its command line and what it wrote to standard error.
    """
    done = subprocess.run(
        argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if done.returncode != 0:
        raise NotReadyError(f"'{shlex.join(argv)}' failed: {done.stderr.strip()}")
    return done.stdout
