"""People who run gpuslice's commands on a machine of theirs, with a kubeconfig."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.cluster.deployed import MANIFESTS
from tests.cluster.life_site import Site
from tests.kube.build import containerd_folder
from tests.kube.cluster import Cluster
from tests.kube.criu import allow_checkpoints
from tests.kube.objects import create_service_account, service_account_token
from tests.kube.process import NotReadyError, wait_until

_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_RIGHTS = MANIFESTS / "components" / "checkpoint-rights" / "rights.yaml"
_PERSON = "operator"
_TIMEOUT_S = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that has ended; what it printed is for people."""

    status: int
    out: str
    err: str

    @classmethod
    def of(cls, kubeconfig: Path, *arguments: str) -> Self:
        """Run a command by a kubeconfig."""
        kept = {name: value for name, value in os.environ.items() if "GPUSLICE" not in name}
        environment = {**kept, "KUBECONFIG": str(kubeconfig), "NO_PROXY": "*", "no_proxy": "*"}
        done = subprocess.run(
            (sys.executable, "-m", "dra_driver", *arguments),
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        return cls(status=done.returncode, out=done.stdout, err=done.stderr)

    def value(self, name: str) -> str:
        """Give what a line tells that begins with this name."""
        (found,) = (line for line in self.out.splitlines() if line.split()[:1] == [name])
        return found.removeprefix(name).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody who looks after the pods of a site."""

    site: Site
    kubeconfig: Path

    @classmethod
    def admin(cls, site: Site) -> Self:
        return cls(site=site, kubeconfig=site.cluster.kubeconfig)

    @classmethod
    def without_rights(cls, site: Site) -> Self:
        admin = site.cluster.admin
        create_service_account(admin, namespace=site.namespace, name=_PERSON)
        token = service_account_token(admin, namespace=site.namespace, name=_PERSON)
        path = site.cluster.write_kubeconfig(f"{_PERSON}-of-{site.namespace}", token=token)
        return cls(site=site, kubeconfig=path)

    def grant(self, kind: str, role: str, *, allows: str, namespace: str = "") -> None:
        """Bind a role to them, in a namespace or in all, which allows to create a subresource."""
        cluster, place = self.site.cluster, (f"--namespace={namespace}",) if namespace else ()
        user = f"{self.site.namespace}:{_PERSON}"
        name = f"system:serviceaccount:{user}"
        cluster.kubectl(
            *("create", f"{kind}binding", f"{role}-of-{self.site.namespace}", f"--{kind}={role}"),
            *(f"--serviceaccount={user}", *place),
        )

        def problem() -> str:
            resource, _, part = allows.partition("/")
            asked = ("create", resource, f"--subresource={part}", f"--as={name}", *place)
            try:
                return "" if cluster.kubectl("auth", "can-i", *asked).startswith("yes") else "no"
            except NotReadyError as error:
                return str(error)

        wait_until(problem, waiting_for=f"the right to create {allows}")

    def run(self, *arguments: str) -> Ended:
        return Ended.of(self.kubeconfig, *arguments)

    def checkpoint(self, pod: str, *more: str) -> Ended:
        return self.run("checkpoint", pod, "--namespace", self.site.namespace, *more)

    def restore(self, taken: Ended) -> Ended:
        """Run what a checkpoint tells to run, with the node's own ctr."""
        program, *arguments = shlex.split(taken.value("restore"))
        assert program == "gpuslice"
        return self.run(*arguments, "--ctr", str(containerd_folder() / "ctr"))


@contextmanager
def without_checkpoint_right(cluster: Cluster) -> Iterator[None]:
    """Let the API server take no checkpoints; what grants it meanwhile is removed afterwards."""
    for each in cluster.admin.list(_BINDINGS):
        if "checkpoint" in each["roleRef"]["name"]:
            cluster.admin.delete(f"{_BINDINGS}/{each['metadata']['name']}")
    # What it was allowed once, the kubelet believes for minutes.
    cluster.restart_kubelet()
    try:
        yield
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-f", str(_RIGHTS))
        allow_checkpoints(cluster.admin)
