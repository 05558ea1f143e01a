"""etcd and a kube-apiserver on loopback: real validation, gates, watches, RBAC; no controllers.

Without a controller-manager nothing collects garbage, issues Leases, taints nodes or makes the
``default`` ServiceAccount of a namespace.
"""

import shutil
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kube.build import KUBERNETES_VERSION, kubernetes_binary
from tests.kube.client import ApiError, Client, Json, write_kubeconfig
from tests.kube.flags import api_server_flags, etcd_flags
from tests.kube.identities import write_identities
from tests.kube.process import Server, free_port
from tests.kube.profiles import DEFAULT, GATES, Profile

__all__ = ["DEFAULT", "GATES", "ApiServer", "Profile"]


class ApiServer:
    """An API server with an etcd of its own; all files lie in ``folder``, all ports on loopback.

    Used as a context manager: it runs and is ready inside, nothing of it runs afterwards. Address,
    certificate and tokens stay the same when the API server alone is stopped and started again.
    """

    def __init__(
        self,
        folder: Path,
        profile: Profile = DEFAULT,
        *,
        version: str = KUBERNETES_VERSION,
        whole_cluster: bool = False,
    ) -> None:
        """Take the binary that holds all components with ``whole_cluster``, else the small one."""
        self.folder = folder
        self._whole_cluster = whole_cluster
        self.profile = profile
        self.version = version
        self._port = 0
        self._etcd: Server | None = None
        self._etcd_url = ""
        self._api: Server | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_identities(self.folder)
        try:
            self._start_etcd()
            self._port = free_port()
            self.start_api()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self) -> Path:
        # kube-apiserver appends the CA that signed its certificate.
        return self.folder / "certs" / "apiserver.crt"

    @property
    def admin(self) -> Client:
        """A client of the group system:masters, whom RBAC does not bind."""
        return self.client((self.folder / "admin.token").read_text())

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.folder / "admin.kubeconfig"

    def client(self, token: str) -> Client:
        return Client(url=self.url, token=token, ca_file=self.ca_file)

    def write_kubeconfig(self, name: str, *, token: str) -> Path:
        """Write ``<name>.kubeconfig`` into the folder for the holder of a token."""
        return write_kubeconfig(self.folder / f"{name}.kubeconfig", self.client(token))

    def start_api(
        self,
        *,
        profile: Profile | None = None,
        version: str | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        """Start the API server on the same etcd, address and certificate, and wait until it serves.

        Args:
            profile: instead of the one in use; stays in use.
            version: instead of the one in use, as after an upgrade; stays in use.
            flags: further flags of kube-apiserver, for this start only.

        Raises:
            NotReadyError: what was waited for, with the end of the log.
        """
        assert self._api is None, "the API server runs already: stop_api() or kill_api() first"
        self.profile = profile or self.profile
        self.version = version or self.version
        self._api = Server(
            [*self._program("kube-apiserver"), *self._flags(), *flags],
            log=self.folder / "kube-apiserver.log",
        )
        try:
            self._api.wait_until(
                self._api_problem, waiting_for="/readyz and the system's namespaces"
            )
        except BaseException:
            self.kill_api()
            raise
        write_kubeconfig(self.kubeconfig, self.admin)

    def stop_api(self) -> None:
        """End the API server and wait for its end; watches end cleanly. etcd stays."""
        assert self._api is not None, "the API server does not run"
        self._api.stop()
        self._api = None

    def kill_api(self) -> None:
        """End the API server at once, as a crash does. etcd stays."""
        assert self._api is not None, "the API server does not run"
        self._api.kill()
        self._api = None

    def _start_etcd(self) -> None:
        self._etcd_url, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._etcd = Server(
            [
                *self._program("etcd"),
                *etcd_flags(self.folder / "etcd", url=self._etcd_url, peer_url=peer),
            ],
            log=self.folder / "etcd.log",
        )
        self._etcd.wait_until(self._etcd_problem, waiting_for=f"{self._etcd_url}/health")

    def _program(self, component: str) -> tuple[str, str]:
        binary = kubernetes_binary(self.version, whole_cluster=self._whole_cluster)
        return str(binary), component

    def _flags(self) -> tuple[str, ...]:
        return api_server_flags(
            self.folder,
            self.profile,
            etcd_url=self._etcd_url,
            address="127.0.0.1",
            port=self._port,
            service_range="10.99.0.0/16",
        )

    def _etcd_problem(self) -> str:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"{self._etcd_url}/health", timeout=1.0):
                return ""
        except OSError as error:
            return str(error)

    def _api_problem(self) -> str:
        try:
            self.admin.text("/readyz")
            namespaces = {item["metadata"]["name"] for item in self._namespaces()}
        except (OSError, ApiError) as error:
            return str(error)
        return ", ".join(sorted({"default", "kube-system"} - namespaces))

    def _namespaces(self) -> tuple[Json, ...]:
        return self.admin.list("/api/v1/namespaces")

    def _end(self) -> None:
        for server in (self._api, self._etcd):
            if server is not None:
                server.kill()
        self._api = self._etcd = None
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)
