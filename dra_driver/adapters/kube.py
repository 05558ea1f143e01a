"""The API server: configuration, TLS, credentials and pooling by the `kubernetes` client.

Importing this module is cheap; the client and its HTTP library are imported by `connect`, because
the kubelet's first question must be answered before they are. Objects go in and out as raw JSON:
the client's models would lose fields that they do not know.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dra_driver import __version__
from dra_driver.errors import AdapterError, SettingsError
from dra_driver.ports import (
    ApiProbe,
    ClaimReader,
    Clock,
    EventSink,
    PodEvents,
    PodReader,
    SliceApi,
)

if TYPE_CHECKING:
    from dra_driver.adapters.kube_transport import Transport

POOL_CONNECTIONS = 48
"""More than the threads that may talk to the server at once; more wait for none."""

_POD_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_KEEPALIVE_IDLE_S = 15
_KEEPALIVE_INTERVAL_S = 5
_KEEPALIVE_PROBES = 3


class KubeApi:
    """All that the driver needs of one API server; parts are thread-safe.

    Attributes:
        slices: this driver's ResourceSlices of this node.
        probe: questions about the server and the node.
        claims: reads claims.
        pods: reads pods.
        events: writes Events about claims.
        pod_events: writes Events about pods.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        slices: SliceApi,
        probe: ApiProbe,
        claims: ClaimReader,
        pods: PodReader,
        events: EventSink,
        pod_events: PodEvents,
    ) -> None:
        self.slices = slices
        self.probe = probe
        self.claims = claims
        self.pods = pods
        self.events = events
        self.pod_events = pod_events
        self._transport = transport

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._transport.server

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()


def connect(*, kubeconfig: Path | None, driver: str, node: str, clock: Clock) -> KubeApi:
    """Prepare for talking to the API server; nothing is sent yet.

    Args:
        kubeconfig: file with address and credentials; None takes the pod's service account.
        driver: driver name.
        node: name of the node.
        clock: of deadlines and Events.

    Raises:
        SettingsError: there is no usable configuration.
    """
    # See the module's docstring for why these are imported here.
    from tenacity.nap import sleep_using_event  # noqa: PLC0415

    from dra_driver.adapters.kube_claims import KubeClaims  # noqa: PLC0415
    from dra_driver.adapters.kube_events import KubeEvents  # noqa: PLC0415
    from dra_driver.adapters.kube_pods import KubePods  # noqa: PLC0415
    from dra_driver.adapters.kube_slices import KubeProbe, KubeSlices  # noqa: PLC0415

    transport = _transport(kubeconfig)
    sleep = sleep_using_event(Event())
    events = KubeEvents(transport, driver=driver, node=node, clock=clock)
    return KubeApi(
        transport,
        slices=KubeSlices(transport, driver=driver, node=node),
        probe=KubeProbe(transport, node=node),
        claims=KubeClaims(transport, clock=clock, sleep=sleep),
        pods=KubePods(transport, clock=clock, sleep=sleep),
        events=events,
        pod_events=events,
    )


def check_configuration(kubeconfig: Path | None) -> None:
    """Find what most often makes `connect` fail, before anything else is done and in no time.

    Raises:
        SettingsError: as `connect` would.
    """
    if kubeconfig is None:
        if not (os.environ.get("KUBERNETES_SERVICE_HOST") and _POD_TOKEN.exists()):
            raise _no_pod("KUBERNETES_SERVICE_HOST or the pod's token is missing")
        return
    import yaml  # noqa: PLC0415 - 10 ms that a pod need not spend

    try:
        content = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise _no_kubeconfig(kubeconfig, error) from error
    if not (isinstance(content, dict) and isinstance(content.get("clusters"), list)):
        raise _no_kubeconfig(kubeconfig, "it has no list of clusters")


def _transport(kubeconfig: Path | None) -> Transport:
    from kubernetes.client import ApiClient  # noqa: PLC0415

    from dra_driver.adapters.kube_transport import Transport  # noqa: PLC0415

    configuration = _configuration(kubeconfig)
    configuration.connection_pool_maxsize = POOL_CONNECTIONS
    # A server that vanished without a word is noticed by a watch within half a minute.
    configuration.socket_options = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES),
    ]
    if _is_loopback(configuration.host):
        configuration.proxy = None
    return Transport(
        configuration.host,
        pool=ApiClient(configuration).rest_client.pool_manager,
        credentials=_Credentials(configuration, kubeconfig),
        user_agent=f"gpuslice/{__version__}",
    )


def _configuration(kubeconfig: Path | None) -> Any:
    import kubernetes.config  # noqa: PLC0415
    from kubernetes.client import Configuration  # noqa: PLC0415
    from yaml import YAMLError  # noqa: PLC0415

    config: Any = kubernetes.config
    configuration = Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(configuration)
        else:
            config.load_kube_config(
                str(kubeconfig), client_configuration=configuration, persist_config=False
            )
    except (config.ConfigException, YAMLError, OSError, ValueError, TypeError) as error:
        if kubeconfig is None:
            raise _no_pod(error) from error
        raise _no_kubeconfig(kubeconfig, error) from error
    return configuration


def _no_pod(cause: object) -> SettingsError:
    return SettingsError(
        f"--kubeconfig is not set and there is no service account of a pod ({cause}): "
        "set --kubeconfig, or run in a pod with automountServiceAccountToken"
    )


def _no_kubeconfig(kubeconfig: Path, cause: object) -> SettingsError:
    return SettingsError(
        f"--kubeconfig {kubeconfig}: cannot be used ({cause}): check that the file is there, "
        "is a kubeconfig, and that its current-context names a cluster and a user"
    )


class _Credentials:
    """Headers of the client's configuration, which reads the token of a pod again by itself."""

    def __init__(self, configuration: Any, kubeconfig: Path | None) -> None:
        self._configuration = configuration
        self._kubeconfig = kubeconfig

    def headers(self) -> Mapping[str, str]:
        from kubernetes.config import ConfigException  # noqa: PLC0415

        try:
            settings = self._configuration.auth_settings().values()
        except (ConfigException, OSError) as error:
            text = f"cannot read the credentials for the API server: {error}"
            raise AdapterError(text) from error
        return {
            str(setting["key"]): str(setting["value"]).strip()
            for setting in settings
            if setting["in"] == "header" and setting["value"]
        }

    def renew(self) -> None:
        try:
            self._configuration = _configuration(self._kubeconfig)
        except SettingsError as error:
            # It was usable at the start, so somebody is at work on it just now.
            raise AdapterError(str(error)) from error


def _is_loopback(url: str) -> bool:
    # As client-go does: no proxy stands between a process and its own machine.
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
