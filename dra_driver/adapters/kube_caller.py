"""The API server as a person meets it: by their kubeconfig, with their rights."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dra_driver import __version__
from dra_driver.errors import AdapterError, SettingsError

if TYPE_CHECKING:
    from dra_driver.adapters.kube_exec import PodExec
    from dra_driver.adapters.kube_transport import Transport
    from dra_driver.ports import Json

_PODS = "/api/v1/namespaces"
_GRACE_S = 15.0
"""A kubelet answers after its own time-out; this is for the way."""


class CallerApi:
    """What a person's commands ask; made by `connect_caller`.

    Attributes:
        namespace: of the kubeconfig's context.
        exec: runs programs in pods.
    """

    def __init__(self, transport: Transport, *, namespace: str, exec_: PodExec) -> None:
        self.namespace = namespace
        self.exec = exec_
        self._transport = transport

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._transport.server

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()

    def pod(self, namespace: str, name: str) -> Json:
        """Read a pod.

        Raises:
            NotFound: there is none.
            Forbidden: the caller may not.
            AdapterError: no answer.
        """
        from dra_driver.adapters.kube_transport import object_path  # noqa: PLC0415

        path = object_path(_PODS, namespace, "pods", name)
        what = f"get Pod {namespace}/{name}"
        return self._transport.call("GET", path, what=what, name=name, kind="Pod")

    def pods(self, namespace: str, *, labels: str, node: str = "") -> tuple[Json, ...]:
        """List pods by a label selector, by name; of one node where it is given.

        Raises:
            Forbidden: the caller may not.
            AdapterError: no answer.
        """
        from dra_driver.adapters.kube_transport import object_path  # noqa: PLC0415

        query = {"labelSelector": labels}
        if node:
            query["fieldSelector"] = f"spec.nodeName={node}"
        path = object_path(_PODS, namespace, "pods")
        what = f"list Pods in {namespace}"
        answer = self._transport.call("GET", path, what=what, kind="PodList", query=query)
        return tuple(sorted(answer.get("items") or (), key=lambda pod: pod["metadata"]["name"]))

    def checkpoint(
        self, node: str, *, namespace: str, pod: str, container: str, timeout_s: int
    ) -> tuple[int, bytes]:
        """Let a kubelet checkpoint a container; status and content of its answer, or a proxy's.

        Raises:
            AdapterError: no answer.
        """
        from dra_driver.adapters.kube_transport import object_path  # noqa: PLC0415

        return self._transport.exchange(
            "POST",
            object_path("/api/v1/nodes", node, "proxy", "checkpoint", namespace, pod, container),
            what=f"checkpoint {namespace}/{pod}/{container} on node {node}",
            query={"timeout": str(timeout_s)},
            timeout_s=timeout_s + _GRACE_S,
        )


def connect_caller(*, kubeconfig: Path | None, context: str = "") -> CallerApi:
    """Prepare for talking to the API server; nothing is sent yet.

    Args:
        kubeconfig: None: as kubectl finds it, by $KUBECONFIG or in the home directory.
        context: of the kubeconfig; empty: its current one.

    Raises:
        SettingsError: there is no usable configuration.
    """
    from kubernetes.client import ApiClient  # noqa: PLC0415 - takes 0.7 s

    from dra_driver.adapters.kube_exec import PodExec  # noqa: PLC0415
    from dra_driver.adapters.kube_transport import Transport  # noqa: PLC0415

    configuration, namespace = _configuration(kubeconfig, context)
    credentials = _Credentials(configuration, kubeconfig, context)
    transport = Transport(
        configuration.host,
        pool=ApiClient(configuration).rest_client.pool_manager,
        credentials=credentials,
        user_agent=f"gpuslice/{__version__}",
    )
    return CallerApi(
        transport, namespace=namespace, exec_=PodExec(configuration, credentials=credentials)
    )


def _configuration(kubeconfig: Path | None, context: str) -> tuple[Any, str]:
    import kubernetes.config  # noqa: PLC0415
    from kubernetes.client import Configuration  # noqa: PLC0415
    from yaml import YAMLError  # noqa: PLC0415

    config: Any = kubernetes.config
    file = None if kubeconfig is None else str(kubeconfig)
    configuration = Configuration()
    try:
        contexts, active = config.list_kube_config_contexts(file)
        config.load_kube_config(
            file, context=context or None, client_configuration=configuration, persist_config=False
        )
    except (config.ConfigException, YAMLError, OSError, ValueError, TypeError) as error:
        where = f"--kubeconfig {kubeconfig}" if kubeconfig else "the kubeconfig"
        raise SettingsError(
            f"{where} cannot be used ({error}): give --kubeconfig a file whose context names a"
            " cluster and a user, or set KUBECONFIG"
        ) from error
    if _is_loopback(configuration.host):
        configuration.proxy = None
    chosen = next((each for each in contexts if each["name"] == context), active)
    return configuration, str((chosen.get("context") or {}).get("namespace") or "default")


class _Credentials:
    """Headers of the client's configuration."""

    def __init__(self, configuration: Any, kubeconfig: Path | None, context: str) -> None:
        self._configuration = configuration
        self._source = (kubeconfig, context)

    def headers(self) -> Mapping[str, str]:
        from kubernetes.config import ConfigException  # noqa: PLC0415

        try:
            settings = self._configuration.auth_settings().values()
        except (ConfigException, OSError) as error:
            raise AdapterError(f"cannot read the kubeconfig's credentials: {error}") from error
        return {
            str(setting["key"]): str(setting["value"]).strip()
            for setting in settings
            if setting["in"] == "header" and setting["value"]
        }

    def renew(self) -> None:
        self._configuration, _ = _configuration(*self._source)


def _is_loopback(url: str) -> bool:
    # As kubectl does: no proxy stands between a person and their own machine.
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
