"""Reading Pods."""

from __future__ import annotations

from collections.abc import Callable

from dra_driver.adapters.kube_reader import PatientReader
from dra_driver.adapters.kube_transport import Transport
from dra_driver.model.deadline import Deadline
from dra_driver.ports import Clock, Json


class KubePods:
    """Implements PodReader; arguments as of `PatientReader`."""

    def __init__(
        self, transport: Transport, *, clock: Clock, sleep: Callable[[float], None]
    ) -> None:
        self._reader = PatientReader(
            transport,
            root="/api/v1/namespaces",
            kind="Pod",
            resource="pods",
            clock=clock,
            sleep=sleep,
        )

    def get_pod(self, namespace: str, name: str, deadline: Deadline) -> Json:
        return self._reader.get(namespace, name, deadline)
