"""The kubelet's PodResources service on a socket."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import grpc

from dra_api.kubelet import podresources_v1_pb2 as messages
from dra_api.kubelet import podresources_v1_pb2_grpc as services


class FakeKubelet(services.PodResourcesListerServicer):
    """Answers List with `pods`, refuses with `refusal`, or keeps callers waiting while `held`.

    `asked` says how often it was.
    """

    def __init__(self, *pods: messages.PodResources) -> None:
        self.pods = pods
        self.refusal: tuple[grpc.StatusCode, str] | None = None
        self.held = False
        self.asked = 0
        self.released = Event()

    def List(  # noqa: N802 - the service's name
        self,
        request: messages.ListPodResourcesRequest,
        context: grpc.ServicerContext,
    ) -> messages.ListPodResourcesResponse:
        self.asked += 1
        if self.held:
            self.released.wait(60)
        if self.refusal is not None:
            context.abort(*self.refusal)
        return messages.ListPodResourcesResponse(pod_resources=self.pods)

    def Get(  # noqa: N802
        self, request: messages.GetPodResourcesRequest, context: grpc.ServicerContext
    ) -> messages.GetPodResourcesResponse:
        del request
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "only List is served")


def pod(
    name: str, *, namespace: str = "team-a", **containers: tuple[str, ...]
) -> messages.PodResources:
    """A pod and the claims of its containers; each claim has two CDI devices, in no order."""
    return messages.PodResources(
        name=name,
        namespace=namespace,
        containers=[
            messages.ContainerResources(
                name=container,
                dynamic_resources=[
                    messages.DynamicResource(
                        claim_name=claim,
                        claim_namespace=namespace,
                        claim_resources=[
                            messages.ClaimResource(
                                driver_name="gpuslice.io",
                                cdi_devices=[
                                    messages.CDIDevice(name=f"gpuslice.io/gpu={claim}-{number}")
                                    for number in (1, 0)
                                ],
                            )
                        ],
                    )
                    for claim in claims
                ],
            )
            for container, claims in containers.items()
        ],
    )


@contextmanager
def serving(socket: Path, kubelet: FakeKubelet) -> Iterator[None]:
    with ThreadPoolExecutor(2, thread_name_prefix="fake-kubelet") as workers:
        server = grpc.server(workers)
        services.add_PodResourcesListerServicer_to_server(kubelet, server)
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield
        finally:
            kubelet.released.set()
            server.stop(None).wait()
