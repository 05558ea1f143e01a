from __future__ import annotations

from pathlib import Path
from threading import Event
from time import monotonic

import grpc
import pytest

from dra_api.kubelet import dra_health_v1_pb2 as health_v1
from dra_api.kubelet import dra_health_v1alpha1_pb2 as health_v1alpha1
from dra_api.kubelet import dra_v1_pb2 as v1
from dra_api.kubelet import dra_v1beta1_pb2 as v1beta1
from dra_api.kubelet import pluginregistration_v1_pb2 as reg
from dra_api.kubelet import pluginregistration_v1_pb2_grpc as reg_grpc
from dra_driver.adapters.clock import SystemClock
from dra_driver.kubelet.operations import PREPARES_AT_ONCE, LateOperations
from dra_driver.kubelet.probe import probe_sockets
from dra_driver.kubelet.registration import SUPPORTED_VERSIONS, Registration
from dra_driver.kubelet.server import DRA_WORKERS, KubeletServer
from dra_driver.sim.kubelet import FakeKubelet
from dra_driver.sim.kubelet_values import KubeletError, Manners
from dra_driver.state.current import Current
from tests.builders import DRIVER, ref
from tests.fakes.recorder import FakeRecorder
from tests.waiting import eventually
from tests.wire.plugin import (
    TIMEOUT_S,
    Plugin,
    channel,
    get_info,
    kubelet_times,
    paths_in,
    prepare,
    prepare_later,
    running,
    unprepare_later,
)


def test_get_info_tells_type_name_endpoint_and_versions_in_order(root: Path) -> None:
    with running(root) as plugin:
        info = get_info(plugin.paths.registration)
        assert info.type == "DRAPlugin"
        assert info.name == DRIVER
        assert info.endpoint == str(root / "plugins" / DRIVER / "dra.sock")
        assert list(info.supported_versions) == [
            "v1.DRAPlugin",
            "v1beta1.DRAPlugin",
            "v1.DRAResourceHealth",
            "v1alpha1.DRAResourceHealth",
        ]


@pytest.mark.parametrize(
    ("service", "method", "request_type", "response_type"),
    [
        (
            "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
            "NodePrepareResources",
            v1.NodePrepareResourcesRequest,
            v1.NodePrepareResourcesResponse,
        ),
        (
            "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
            "NodeUnprepareResources",
            v1.NodeUnprepareResourcesRequest,
            v1.NodeUnprepareResourcesResponse,
        ),
        (
            "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
            "NodePrepareResources",
            v1beta1.NodePrepareResourcesRequest,
            v1beta1.NodePrepareResourcesResponse,
        ),
        (
            "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
            "NodeUnprepareResources",
            v1beta1.NodeUnprepareResourcesRequest,
            v1beta1.NodeUnprepareResourcesResponse,
        ),
    ],
)
def test_endpoint_answers_an_empty_call_under_the_name_on_the_wire(
    root: Path, service: str, method: str, request_type: type, response_type: type
) -> None:
    with running(root, ready=False) as plugin, channel(plugin.paths.dra) as opened:
        call = opened.unary_unary(
            f"/{service}/{method}",
            request_serializer=request_type.SerializeToString,  # type: ignore[attr-defined]
            response_deserializer=response_type.FromString,  # type: ignore[attr-defined]
        )
        assert len(call(request_type(), timeout=1.0).claims) == 0
        assert plugin.operations.calls == []


@pytest.mark.parametrize(
    ("package", "messages"), [("v1", health_v1), ("v1alpha1", health_v1alpha1)]
)
def test_endpoint_answers_a_health_watch_under_the_name_on_the_wire(
    root: Path, package: str, messages: object
) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        watch = opened.unary_stream(
            f"/{package}.DRAResourceHealth/NodeWatchResources",
            request_serializer=health_v1.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=messages.NodeWatchResourcesResponse.FromString,  # type: ignore[attr-defined]
        )
        stream = watch(health_v1.NodeWatchResourcesRequest(), timeout=TIMEOUT_S)
        assert len(next(iter(stream)).devices) == 0
        stream.cancel()


def test_all_advertised_versions_are_ones_that_the_tests_above_call() -> None:
    assert set(SUPPORTED_VERSIONS) == {
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    }


def test_registration_succeeds_and_tells_its_listener_when_the_kubelet_accepts(root: Path) -> None:
    with (
        FakeKubelet(root, wipe=_nothing, times=kubelet_times()) as kubelet,
        running(root) as plugin,
    ):
        assert plugin.registered.wait(TIMEOUT_S)
        assert plugin.registration.get() == Registration(registered=True, answers=1)
        assert kubelet.endpoint(DRIVER).service == "v1.DRAPlugin"
        assert plugin.recorder.counted("registrations_total", outcome="accepted") == 1


def test_registration_keeps_the_reason_and_recovers_when_the_kubelet_refuses(root: Path) -> None:
    with running(root) as plugin:
        refusing = Manners(refuse="not today")
        with FakeKubelet(root, wipe=_nothing, times=kubelet_times(), manners=refusing) as kubelet:
            eventually(lambda: len(kubelet.tries()) >= 2, TIMEOUT_S, "a second try")
            state = plugin.registration.get()
            assert not state.registered
            assert state.refusal.endswith("not today")
            assert not plugin.registered.is_set()
            # The refusal was answered, not failed: the kubelet's own text is all it reports.
            assert {each.error for each in kubelet.tries()} == {state.refusal}
        with FakeKubelet(root, wipe=_nothing, times=kubelet_times()):
            assert plugin.registered.wait(TIMEOUT_S)
            assert plugin.registration.get().refusal == ""


def test_registration_answers_notify_when_its_listener_fails(root: Path) -> None:
    paths = paths_in(root)
    recorder = FakeRecorder()

    def broken() -> None:
        raise RuntimeError("listener")

    server = KubeletServer(
        paths,
        operations=LateOperations(SystemClock()),
        health=Current(()),
        registration=Current(Registration()),
        on_registered=broken,
        clock=SystemClock(),
        recorder=recorder,
    )
    server.start()
    try:
        with channel(paths.registration) as opened:
            reg_grpc.RegistrationStub(opened).NotifyRegistrationStatus(
                reg.RegistrationStatus(plugin_registered=True), timeout=TIMEOUT_S
            )
    finally:
        server.stop(grace_s=0.0)
    assert recorder.counted("registrations_total", outcome="accepted") == 1


def test_registration_says_the_kubelets_words_when_no_version_is_known(root: Path) -> None:
    manners = Manners(services=("v9.DRAPlugin",))
    with running(root) as plugin:
        with FakeKubelet(root, wipe=_nothing, times=kubelet_times(), manners=manners) as kubelet:
            refused = eventually(lambda: plugin.registration.get().refusal, TIMEOUT_S, "a refusal")
            with pytest.raises(KubeletError, match=f"DRA driver {DRIVER} is not registered"):
                kubelet.endpoint(DRIVER)
        assert "none of services supported by the plugin" in refused


def test_registration_answers_at_once_when_all_dra_threads_are_busy(root: Path) -> None:
    refs = [ref(number) for number in range(40)]
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        gates = [plugin.operations.gate(each.uid) for each in refs]
        calls = [prepare_later(opened, each) for each in refs[:PREPARES_AT_ONCE]]
        calls += [unprepare_later(opened, each) for each in refs[PREPARES_AT_ONCE:]]
        eventually(lambda: len(plugin.operations.calls) >= DRA_WORKERS, TIMEOUT_S, "a full pool")
        started_s = monotonic()
        get_info(plugin.paths.registration)
        assert monotonic() - started_s < 1.0
        for gate in gates:
            gate.open.set()
        for call in calls:
            call.result(timeout=TIMEOUT_S)


def test_registration_socket_appears_when_the_endpoint_is_connectable_already(root: Path) -> None:
    plugin = Plugin(root)
    with FakeKubelet(root, wipe=_nothing, times=kubelet_times(poll_s=0.001)) as kubelet:
        plugin.start()
        eventually(kubelet.tries, TIMEOUT_S, "a try")
        assert [each.error for each in kubelet.tries()] == [""]
        assert kubelet.endpoint(DRIVER).prepare((ref(),))
    plugin.stop()


def test_registration_is_found_again_when_the_kubelet_restarts(root: Path) -> None:
    wipes = []
    with running(root) as plugin:
        with FakeKubelet(root, wipe=lambda: wipes.append(1), times=kubelet_times()) as kubelet:
            assert plugin.registered.wait(TIMEOUT_S)
            eventually(lambda: len(wipes) == 1, TIMEOUT_S, "the wipe of the first start")
            plugin.registered.clear()
            kubelet.restart()
            assert plugin.registered.wait(TIMEOUT_S)
            eventually(lambda: len(wipes) == 2, TIMEOUT_S, "the wipe of the second start")
        assert plugin.registration.get().answers == 2


def test_probe_finds_nothing_wrong_when_both_sockets_answer(root: Path) -> None:
    with running(root, ready=False) as plugin:
        assert probe_sockets(plugin.paths, timeout_s=1.0) == ""


@pytest.mark.parametrize("which", ["dra", "registration"])
def test_probe_names_the_socket_when_its_file_was_removed(root: Path, which: str) -> None:
    with running(root) as plugin:
        assert probe_sockets(plugin.paths, timeout_s=1.0) == ""
        path = getattr(plugin.paths, which)
        path.unlink()
        assert str(path) in probe_sockets(plugin.paths, timeout_s=1.0)


def test_connection_survives_when_the_kubelet_pings_without_calls(root: Path) -> None:
    # Three pings in the time in which gRPC's default server would have said "too many pings".
    options = {
        "keepalive_time_ms": 1000,
        "keepalive_timeout_ms": 1000,
        "keepalive_permit_without_calls": 1,
        "http2.max_pings_without_data": 0,
    }
    ready, lost = Event(), Event()

    def follow(state: grpc.ChannelConnectivity) -> None:
        if state is grpc.ChannelConnectivity.READY:
            ready.set()
        elif ready.is_set():
            lost.set()

    with running(root) as plugin, channel(plugin.paths.dra, **options) as opened:
        opened.subscribe(follow, try_to_connect=True)
        assert ready.wait(TIMEOUT_S)
        assert not lost.wait(4.5)
        assert len(prepare(opened).claims) == 0
        opened.unsubscribe(follow)


def _nothing() -> None:
    pass
