"""etcd and a kube-apiserver on loopback: real validation, gates, watches, RBAC; no controllers.

Without a controller-manager nothing collects garbage, issues Leases, taints nodes or makes the
``default`` ServiceAccount of a namespace.
"""

import base64
import secrets
import shutil
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kube.build import KUBERNETES_VERSION, kubernetes_binary
from tests.kube.client import ApiError, Client, Json, write_kubeconfig
from tests.kube.process import Server, free_port


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is switched on beyond the version's defaults: feature gates and API group versions."""

    name: str
    gates: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()

    def flags(self) -> tuple[str, ...]:
        gates = ",".join(f"{gate}=true" for gate in self.gates)
        versions = ",".join(f"{version}=true" for version in self.api_versions)
        return (
            *((f"--feature-gates={gates}",) if gates else ()),
            *((f"--runtime-config={versions}",) if versions else ()),
        )


DEFAULT = Profile(name="default")
GATES = Profile(
    name="gates",
    gates=(
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRADeviceTaints",
        "DRAExtendedResource",
        "DRAPartitionableDevices",
    ),
    # 1.34's scheduler with DRADeviceTaints waits for DeviceTaintRule of this version.
    api_versions=("resource.k8s.io/v1alpha3",),
)


class ApiServer:
    """An API server with an etcd of its own; all files lie in ``folder``, all ports on loopback.

    Used as a context manager: it runs and is ready inside, nothing of it runs afterwards. Address,
    certificate and tokens stay the same when the API server alone is stopped and started again.
    """

    def __init__(
        self, folder: Path, profile: Profile = DEFAULT, *, version: str = KUBERNETES_VERSION
    ) -> None:
        self.folder = folder
        self.profile = profile
        self.version = version
        self._port = 0
        self._etcd: Server | None = None
        self._etcd_url = ""
        self._api: Server | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        _write_secrets(self.folder)
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
            [str(kubernetes_binary(self.version)), "kube-apiserver", *self._flags(), *flags],
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
                str(kubernetes_binary(self.version)),
                "etcd",
                f"--data-dir={self.folder / 'etcd'}",
                f"--listen-client-urls={self._etcd_url}",
                f"--advertise-client-urls={self._etcd_url}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
            log=self.folder / "etcd.log",
        )
        self._etcd.wait_until(self._etcd_problem, waiting_for=f"{self._etcd_url}/health")

    def _flags(self) -> tuple[str, ...]:
        key = self.folder / "service-account.key"
        return (
            f"--etcd-servers={self._etcd_url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self.folder / 'certs'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.99.0.0/16",
            # Endpoints may not name loopback; nobody reaches this server through its Service.
            "--endpoint-reconciler-type=none",
            "--advertise-address=127.0.0.1",
            *self.profile.flags(),
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


def _write_secrets(folder: Path) -> None:
    token = secrets.token_hex(16)
    (folder / "admin.token").write_text(token)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    (folder / "service-account.key").write_text(_ec_private_key_pem())


def _ec_private_key_pem() -> str:
    """Make a key on the curve P-256 as RFC 5915 writes it, without the optional public part."""
    scalar = secrets.randbelow(1 << 255).to_bytes(32, "big")
    curve = bytes.fromhex("a00a06082a8648ce3d030107")
    der = bytes.fromhex("30310201010420") + scalar + curve
    return (
        "-----BEGIN EC PRIVATE KEY-----\n"
        f"{base64.b64encode(der).decode()}\n"
        "-----END EC PRIVATE KEY-----\n"
    )
