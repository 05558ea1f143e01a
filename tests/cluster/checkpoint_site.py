"""Checkpoints of a team's pods through the kubelet, and pods that are restored from them."""

import itertools
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from tests.cluster.life_site import Site, Tenant
from tests.kube.images import Image, write_archive
from tests.kube.process import wait_until

CONTAINER = "main"
# One process without children: a dump may come at any moment.
_COUNT = """
trap 'exit 0' TERM
read -r id </proc/sys/kernel/random/uuid
mkfifo /tmp/never
exec 3<>/tmp/never
while :; do echo "$id $((n += 1))" >/tmp/count; read -r -t 0.1 _ <&3; done
"""
PATIENCE_S = 60.0

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Takes checkpoints on the node of a site, with the caller's rights at its API server."""

    site: Site

    def take(self, pod: str, *, patience_s: float = PATIENCE_S) -> Path:
        """Checkpoint a pod's container, which runs on; gives the archive on the node.

        Raises:
            ApiError: it was refused, or failed.
            TimeoutError: it took longer than `patience_s`. The kubelet's own time limit is never
                below two minutes; but when its caller goes away, it stops at once.
        """
        cluster = self.site.cluster
        path = f"{self.site.namespace}/{pod}/{CONTAINER}"
        client = replace(cluster.admin, timeout_s=patience_s)
        node = f"/api/v1/nodes/{cluster.node_name}"
        answer = client.request("POST", f"{node}/proxy/checkpoint/{path}")
        (archive,) = answer["items"]
        return cluster.node_path(archive)

    def archives(self) -> frozenset[Path]:
        """Give the checkpoints of the site's pods that are on the node."""
        pattern = f"checkpoint-*_{self.site.namespace}-*.tar"
        return frozenset((self.site.cluster.kubelet_root / "checkpoints").glob(pattern))

    def image(self, archive: Path) -> str:
        """Make the image that restores a checkpoint and load it; gives its name."""
        cluster, name = self.site.cluster, f"docker.io/local/checkpoint:{next(_numbers)}"
        mark = {"org.criu.checkpoint.container.name": CONTAINER}
        image = Image(name=name, layers=(archive,), annotations=mark)
        target = write_archive(cluster.folder / "checkpoint.tar", [image])
        cluster.load_image(target)
        target.unlink()
        return name

    def start_counting(self, pod: str, *requests: Any) -> Tenant:
        """Start a pod that counts, with a claim for each request."""
        self.site.create(pod, *requests, **counting())
        return self.counting(pod)

    def counting(self, pod: str) -> Tenant:
        """Wait until a pod counts, and give it."""
        tenant = self.site.started(pod)
        Count.of(tenant)
        return tenant

    def remove(self) -> None:
        """Remove the archives of the site's pods from the node."""
        for archive in self.archives():
            archive.unlink()


def counting(*, first: str = "") -> dict[str, Any]:
    """Give the part of a pod's spec that lets it count: as for `Site.create`.

    `first` is a shell's script that it runs before.
    """
    command = ["sh", "-c", first + _COUNT]
    return {"containers": [{"name": CONTAINER, "image": "busybox:1", "command": command}]}


def connected(port: int) -> str:
    """Give a script, as for `counting`, that leaves a connection of two processes behind."""
    established = f"netstat -tn | grep ':{port} ' | grep -q ESTABLISHED"
    return f"""
sleep 1000 | nc -l -p {port} -e cat &
until {established}; do sleep 1000 | nc 127.0.0.1 {port} & sleep 0.2; done
"""


def restored_from(image: str) -> dict[str, Any]:
    """Give the part of a pod's spec that restores it from an image: as for `Site.create`."""
    return {"containers": [{"name": CONTAINER, "image": image, "imagePullPolicy": "Never"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How far a pod has counted; `process` stays the same where it is restored, and only there."""

    process: str
    number: int

    @classmethod
    def of(cls, tenant: Tenant) -> Self:
        """Read it, once there is one."""
        file = Path(f"/proc/{tenant.pid}/root/tmp/count")

        found: list[str] = []

        def problem() -> str:
            # While it is written, it is empty.
            found[:] = file.read_text().split() if file.exists() else ()
            return "" if len(found) == len(fields(cls)) else "nothing yet"

        wait_until(problem, waiting_for=f"pod {tenant.name} to count")
        return cls(process=found[0], number=int(found[1]))
