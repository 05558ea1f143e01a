"""Reading ResourceClaims."""

from __future__ import annotations

from collections.abc import Callable

from dra_driver.adapters.kube_reader import PatientReader
from dra_driver.adapters.kube_transport import Transport
from dra_driver.model.deadline import Deadline
from dra_driver.ports import Clock, Json


class KubeClaims:
    """Implements ClaimReader; arguments as of `PatientReader`."""

    def __init__(
        self, transport: Transport, *, clock: Clock, sleep: Callable[[float], None]
    ) -> None:
        self._reader = PatientReader(
            transport,
            root="/apis/resource.k8s.io/v1/namespaces",
            kind="ResourceClaim",
            resource="resourceclaims",
            clock=clock,
            sleep=sleep,
        )

    def get_claim(self, namespace: str, name: str, deadline: Deadline) -> Json:
        return self._reader.get(namespace, name, deadline)
