"""A whole Kubernetes cluster with one real node: kubelet, containerd and runc on this machine.

Its processes do not depend on the one that starts them; the folder alone leads to all of it.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kube.build import KUBERNETES_VERSION, containerd_folder, kubernetes_binary
from tests.kube.cell import Cell, check_folder
from tests.kube.client import Client, write_kubeconfig
from tests.kube.cluster_state import ClusterState
from tests.kube.components import Components
from tests.kube.daemons import ProcessId
from tests.kube.identities import (
    API_SERVER,
    cluster_users,
    write_identities,
    write_kubelet_client_certificate,
)
from tests.kube.images import write_base_images
from tests.kube.objects import bind_cluster_role
from tests.kube.process import NotReadyError
from tests.kube.profiles import DEFAULT, Profile
from tests.kube.readiness import Readiness
from tests.kube.tools import Ctr, run, write_kubectl

CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
COMPONENTS = ("containerd", "etcd", "kube-apiserver", *CONTROLLERS, "kubelet")
"""Names of the processes, in the order in which they are started."""


class Cluster:
    """A cluster whose files all lie in ``folder``, which it creates and removes.

    Used as a context manager: its node is ready inside, nothing of it is left afterwards. A cluster
    of the same folder whose owner was killed is ended first. Needs root.
    """

    def __init__(
        self,
        folder: Path,
        *,
        version: str = KUBERNETES_VERSION,
        profile: Profile = DEFAULT,
        node_name: str = "node-0",
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder = folder.absolute()
        self.cell = Cell(folder=self.folder)
        self._say = say
        self._state = ClusterState(
            version=version,
            node_version=version,
            profile=profile.name,
            node_name=node_name,
            owner=None,
        )

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """Give the cluster that somebody has started in a folder."""
        state = ClusterState.load(folder)
        if state is None:
            return None
        cluster = cls(folder)
        cluster._state = state
        return cluster

    def __enter__(self) -> Self:
        existing = ClusterState.load(self.folder)
        if existing is not None and existing.orphaned:
            self.down()
        self._state = replace(self._state, owner=ProcessId.mine())
        self.up()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.down()

    def up(self) -> None:
        """Start everything and wait until pods can run; builds what has to be built first.

        Raises:
            FileExistsError: the folder is there already.
            NotReadyError: what does not come up, with the end of its log; all is removed again.
        """
        if problem := check_folder(self.folder):
            raise NotReadyError(problem)
        binary = kubernetes_binary(self.version, whole_cluster=True)
        containerd_folder()
        self.folder.mkdir(parents=True)
        try:
            self._state.save(self.folder)
            self._update(number=self.cell.create().number)
            self._write_files(binary)
            self._start_all()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """End everything and remove the folder. Repeatable, and after any kind of crash."""
        self.cell.destroy()

    @property
    def state(self) -> ClusterState:
        return self._state

    @property
    def version(self) -> str:
        """The version of the control plane."""
        return self._state.version

    @property
    def node_name(self) -> str:
        return self._state.node_name

    @property
    def url(self) -> str:
        return f"https://{self._state.addresses.api_server}:443"

    @property
    def ca_file(self) -> Path:
        return self._control / "certs" / "apiserver.crt"

    @property
    def admin(self) -> Client:
        """A client of the group system:masters, whom RBAC does not bind."""
        return self.client((self._control / "admin.token").read_text())

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self._control / "admin.kubeconfig"

    @property
    def kubelet_root(self) -> Path:
        """What the node sees as /var/lib/kubelet, without mounted volumes."""
        return self.folder / "kubelet"

    @property
    def cdi_dir(self) -> Path:
        """What the node sees as /var/run/cdi, which containerd reads."""
        return self.folder / "run" / "cdi"

    def node_path(self, path: str) -> Path:
        """Give the place of a file that the node wrote to /etc, /opt, /var or /run."""
        return self.cell.place_of(path)

    def client(self, token: str) -> Client:
        return Client(url=self.url, token=token, ca_file=self.ca_file)

    def write_kubeconfig(self, name: str, *, token: str) -> Path:
        """Write ``<name>.kubeconfig`` for the holder of a token."""
        return write_kubeconfig(self._control / f"{name}.kubeconfig", self.client(token))

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60.0) -> str:
        """Run kubectl as the admin; answers its standard output.

        Raises:
            NotReadyError: it failed; with what it wrote to standard error.
        """
        kubectl = str(self.folder / "kubectl")
        return run((kubectl, *arguments), stdin=stdin, timeout_s=timeout_s)

    @property
    def ctr(self) -> Ctr:
        return Ctr(program=containerd_folder() / "ctr", cell=self.cell)

    def load_image(self, archive: Path) -> None:
        """Import an archive in OCI layout, so that pods can use its images without pulling."""
        self.ctr.import_images(archive)

    def pid(self, component: str) -> int | None:
        """Give the id of a component's process, if it runs."""
        return self.cell.daemons.pid(component)

    def scheduler_pid(self) -> int | None:
        return self.pid("kube-scheduler")

    def restart_kubelet(self) -> None:
        """End the kubelet and start it again; pods run on. Returns when the node is ready."""
        self.stop("kubelet")
        self.start("kubelet")
        self._readiness.wait_for_node(self.admin, self.node_name)

    def stop_api(self) -> None:
        self.stop("kube-apiserver")

    def start_api(self) -> None:
        self.start("kube-apiserver")
        self._readiness.wait_for_api(lambda: self.admin)

    def upgrade_control_plane(self, version: str) -> None:
        """Go on with another version on the same etcd; the node keeps its own."""
        kubernetes_binary(version, whole_cluster=True)
        control_plane = ("kube-apiserver", *CONTROLLERS)
        for component in reversed(control_plane):
            self.stop(component)
        self._update(version=version)
        self.start_api()
        for component in CONTROLLERS:
            self.start(component)
        self._readiness.wait_for_controllers()

    def stop(self, component: str) -> None:
        """Ask a component to end and wait for it. Repeatable."""
        # The API server would wait for a minute for watches that others hold; no other takes so long.
        self.cell.daemons.stop(component, grace_s=2.0)

    def start(self, component: str) -> None:
        """Start a component that does not run; returns before it is ready."""
        command = {
            "containerd": self._components.containerd,
            "etcd": self._components.etcd,
            "kube-apiserver": self._components.kube_apiserver,
            "kube-controller-manager": self._components.kube_controller_manager,
            "kube-scheduler": self._components.kube_scheduler,
            "kubelet": self._components.kubelet,
        }[component]()
        path = self.cell.search_path(containerd_folder())
        environment = {"PATH": path, "NO_PROXY": "*", "no_proxy": "*"}
        if component != "containerd":
            version = self._state.node_version if component == "kubelet" else self.version
            command = (str(kubernetes_binary(version, whole_cluster=True)), *command)
        self.cell.daemons.start(component, self.cell.inside(command), environment=environment)

    @property
    def _control(self) -> Path:
        return self.folder / "control"

    @property
    def _components(self) -> Components:
        return Components(
            control=self._control,
            config=self.folder / "config",
            addresses=self._state.addresses,
            profile=self._state.control_profile,
            node_profile=self._state.node_profile,
            node_name=self.node_name,
            cgroup_root=self.cell.cgroups.pods,
            bridge=self.cell.bridge,
        )

    @property
    def _readiness(self) -> Readiness:
        return Readiness(daemons=self.cell.daemons, addresses=self._state.addresses)

    def _write_files(self, binary: Path) -> None:
        self._control.mkdir()
        write_identities(self._control, cluster_users(self.node_name))
        write_kubelet_client_certificate(self._control)
        self._components.write_config()
        write_kubectl(self.folder / "kubectl", binary=binary, kubeconfig=self.kubeconfig)

    def _start_all(self) -> None:
        readiness, started_s = self._readiness, time.monotonic()
        self.start("containerd")
        self.start("etcd")
        readiness.wait_for_etcd()
        self.start_api()
        for name in cluster_users(self.node_name):
            self.write_kubeconfig(name, token=(self._control / f"{name}.token").read_text())
        bind_cluster_role(self.admin, "system:kubelet-api-admin", user=API_SERVER)
        self._say(f"API server {self.version} serves at {self.url}")
        for component in CONTROLLERS:
            self.start(component)
        readiness.wait("containerd", self.ctr.problem, waiting_for="containerd's socket")
        self.start("kubelet")
        self.load_image(write_base_images(self.folder))
        readiness.wait_for_controllers()
        readiness.wait_for_node(self.admin, self.node_name)
        self._say(f"node {self.node_name} is ready after {time.monotonic() - started_s:.0f} s")

    def _update(self, *, version: str | None = None, number: int | None = None) -> None:
        """Change what is written down, where a value is given."""
        self._state = replace(
            self._state,
            version=version or self._state.version,
            number=self._state.number if number is None else number,
        )
        self._state.save(self.folder)
