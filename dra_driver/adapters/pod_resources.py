"""What the kubelet tells of containers and their claims (PodResources v1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from dra_api.kubelet import podresources_v1_pb2 as messages
from dra_api.kubelet import podresources_v1_pb2_grpc as services
from dra_driver.errors import AdapterError
from dra_driver.model.deadline import Deadline
from dra_driver.model.owner import PodClaims
from dra_driver.ports import Clock

_BYTES_MAX = 16 << 20
"""As the kubelet's own client has it; a node of hundreds of pods answers some MB."""
_File = tuple[int, int, int]
_OPTIONS = (
    ("grpc.max_receive_message_length", _BYTES_MAX),
    # Pooled connections outlive the socket's file.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)
_WAYS_OUT = {
    grpc.StatusCode.UNAVAILABLE: (
        "check --pod-resources-socket, and that its folder is mounted into the plugin's container"
    ),
    grpc.StatusCode.DEADLINE_EXCEEDED: "see the kubelet's log",
    grpc.StatusCode.RESOURCE_EXHAUSTED: (
        "its answer is too large, or it is asked too often by others too: see its log"
    ),
    grpc.StatusCode.UNIMPLEMENTED: "it is too old, or the socket is another service's",
}


class KubeletPodResources:
    """`PodResources` of the kubelet; one connection is kept, and safe to use from many threads.

    Containers without claims are left out. The kubelet lists all devices of a claim for each of its
    containers, whichever of its requests they name, so the CDI devices are those of the claims.

    Args:
        socket: the kubelet's.
        clock: of deadlines.
    """

    def __init__(self, socket: Path, *, clock: Clock) -> None:
        self._socket = socket
        self._clock = clock
        self._kept: tuple[_File | None, services.PodResourcesListerStub] | None = None

    def pods(self, deadline: Deadline) -> tuple[PodClaims, ...]:
        answer = self._list(deadline)
        found = (
            _claims(pod, container)
            for pod in answer.pod_resources
            for container in pod.containers
            if container.dynamic_resources
        )
        return tuple(sorted(found, key=lambda each: (each.namespace, each.pod, each.container)))

    def _list(self, deadline: Deadline) -> messages.ListPodResourcesResponse:
        # A kubelet that was restarted has another socket.
        file, kept = self._file(), self._kept
        if kept is None or kept[0] != file:
            channel = grpc.insecure_channel(f"unix:{self._socket}", options=_OPTIONS)
            kept = file, services.PodResourcesListerStub(channel)
        try:
            answer = self._asked(kept[1], deadline)
        except grpc.RpcError as error:
            self._kept = None
            raise self._failure(error) from error
        # One that is replaced is not closed: others may wait on it, and it goes with the last.
        self._kept = kept
        return answer

    def _asked(
        self, stub: services.PodResourcesListerStub, deadline: Deadline
    ) -> messages.ListPodResourcesResponse:
        timeout_s = deadline.remaining_s(self._clock.monotonic_s())
        found: messages.ListPodResourcesResponse = stub.List(
            messages.ListPodResourcesRequest(), timeout=timeout_s
        )
        return found

    def _file(self) -> _File | None:
        """What tells the socket from a later one of its name."""
        try:
            status = self._socket.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_ctime_ns

    def _failure(self, error: Any) -> AdapterError:
        # What a stub raises is a Call too; the types of grpcio cannot say so.
        reason = error.details() or error.code().name
        way_out = _WAYS_OUT.get(error.code(), "see the kubelet's log")
        return AdapterError(
            f"the kubelet does not tell which containers use which claims on {self._socket}: "
            f"{reason}; {way_out}"
        )


def _claims(pod: messages.PodResources, container: messages.ContainerResources) -> PodClaims:
    resources = container.dynamic_resources
    return PodClaims(
        namespace=pod.namespace,
        pod=pod.name,
        container=container.name,
        claims=tuple(sorted({each.claim_name for each in resources})),
        cdi_ids=tuple(
            sorted(
                {
                    device.name
                    for each in resources
                    for claim in each.claim_resources
                    for device in claim.cdi_devices
                }
            )
        ),
    )
