"""Looks at the pods of a claim where one of their containers may get two shares under MPS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dra_driver.errors import AdapterError, NotFound, NotReady, Reason
from dra_driver.model.claim import PodRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.record import Record
from dra_driver.plan.containers import check_containers, pods_to_read
from dra_driver.ports import Clock, Json, PodReader

_PATIENCE_S = 5.0
"""For each pod: the locks of GPUs are held meanwhile."""


class ContainerCheck:
    """Checks a record once it is reserved.

    Of two claims of a pod that are prepared side by side the later then sees the other one.
    """

    def __init__(self, pods: PodReader, clock: Clock) -> None:
        self._pods = pods
        self._clock = clock

    def check(self, record: Record, others: Mapping[str, Record], deadline: Deadline) -> None:
        """Check a record against `others` of its pods, by claim UID.

        Raises:
            ClaimRejected: a container would get two shares.
            NotReady: a pod could not be read.
        """
        for pod in pods_to_read(record, others.values()):
            body = self._read(record, pod, deadline)
            if body is not None:
                check_containers(body, record, others.values())

    def _read(self, record: Record, pod: PodRef, deadline: Deadline) -> Json | None:
        """A pod; None where it is gone, so that its containers never start."""
        patience = Deadline(min(deadline.at_s, self._clock.monotonic_s() + _PATIENCE_S))
        try:
            body = self._pods.get_pod(record.claim.namespace, pod.name, patience)
        except NotFound:
            return None
        except AdapterError as error:
            raise NotReady(
                Reason.API_UNAVAILABLE,
                f"claim {record.claim}: it is not known which container of pod {pod.name} uses "
                f"which of its MPS shares, of which a container can have one: {error}",
            ) from error
        return body if _uid(body) == pod.uid else None


def _uid(body: Json) -> Any:
    metadata = body.get("metadata")
    return metadata.get("uid") if isinstance(metadata, Mapping) else None
