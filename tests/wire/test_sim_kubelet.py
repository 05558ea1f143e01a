from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from dra_driver.errors import AdapterError
from dra_driver.model.claim import ClaimRef
from dra_driver.sim.kubelet import FakeKubelet
from dra_driver.sim.kubelet_values import KubeletClaim, KubeletError, Manners
from tests.builders import DRIVER, ref
from tests.fakes.dra_plugin import FakeDraPlugin, serving
from tests.waiting import eventually
from tests.wire.plugin import TIMEOUT_S, kubelet_times, running

FAKE = "fake.io"
ONE, TWO = ref(1), ref(2)


def test_prepare_calls_the_driver_once_with_all_claims_of_the_pod(root: Path) -> None:
    with _pair(root) as (kubelet, plugin):
        kubelet.prepare("pod-1", _claims(ONE, TWO))
        assert plugin.prepares == [[ONE.uid, TWO.uid]]
        assert kubelet.cdi_ids(ONE.uid, request="gpu") == (f"fake/claim={ONE.uid}",)
        assert kubelet.cdi_ids(ONE.uid, request="other") == ()


def test_prepare_calls_nobody_when_another_pod_had_the_claim_prepared(root: Path) -> None:
    with _pair(root) as (kubelet, plugin):
        kubelet.prepare("pod-1", _claims(ONE))
        kubelet.prepare("pod-2", _claims(ONE))
        assert plugin.prepares == [[ONE.uid]]
        kubelet.unprepare("pod-1")
        assert plugin.unprepares == []
        kubelet.unprepare("pod-2")
        assert plugin.unprepares == [[ONE.uid]]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"errors": {TWO.uid: "bad config"}},
            "NodePrepareResources failed for ResourceClaim claim-2: bad config",
        ),
        ({"skipped": {TWO.uid}}, "NodePrepareResources skipped 1 ResourceClaims"),
        ({"extra": {"who"}}, "NodePrepareResources returned result for unknown claim UID who"),
    ],
)
def test_prepare_fails_and_sends_all_claims_again_when_an_answer_is_wrong(
    root: Path, options: dict[str, Any], text: str
) -> None:
    with _pair(root, **options) as (kubelet, plugin):
        for _ in range(2):
            with pytest.raises(KubeletError, match=text):
                kubelet.prepare("pod-1", _claims(ONE, TWO))
        assert plugin.prepares == [[ONE.uid, TWO.uid]] * 2
        plugin.errors, plugin.skipped, plugin.extra = {}, set(), set()
        # A claim that never was prepared is unprepared all the same.
        kubelet.unprepare("pod-1")
        assert plugin.unprepares == [[ONE.uid, TWO.uid]]


def test_unprepare_can_be_repeated_when_it_failed(root: Path) -> None:
    with _pair(root) as (kubelet, plugin):
        kubelet.prepare("pod-1", _claims(ONE))
        plugin.errors = {ONE.uid: "busy"}
        with pytest.raises(
            KubeletError, match="NodeUnprepareResources failed for ResourceClaim claim-1: busy"
        ):
            kubelet.unprepare("pod-1")
        plugin.errors = {}
        kubelet.unprepare("pod-1")
        kubelet.unprepare("pod-1")
        assert plugin.unprepares == [[ONE.uid], [ONE.uid]]


def test_prepare_is_refused_when_the_name_stands_for_an_older_claim(root: Path) -> None:
    with _pair(root) as (kubelet, _):
        kubelet.prepare("pod-1", _claims(ONE))
        newer = ClaimRef(ONE.namespace, ONE.name, TWO.uid)
        with pytest.raises(KubeletError, match=r"different UID .* still exists"):
            kubelet.prepare("pod-2", _claims(newer))


@pytest.mark.parametrize(
    ("manners", "count"), [(Manners(append_devices=True), 2), (Manners(), 1)], ids=["1.34", "1.37"]
)
def test_prepare_comes_again_when_the_kubelet_restarted(
    root: Path, manners: Manners, count: int
) -> None:
    with _pair(root, manners=manners) as (kubelet, plugin):
        kubelet.prepare("pod-1", _claims(ONE))
        kubelet.restart()
        eventually(lambda: kubelet.endpoints(FAKE), TIMEOUT_S, "registration")
        kubelet.prepare("pod-2", _claims(ONE))
        assert plugin.prepares == [[ONE.uid]] * 2
        assert len(kubelet.devices(ONE.uid)) == count


def test_two_pods_of_a_claim_reach_the_driver_at_the_same_time(root: Path) -> None:
    with (
        running(root) as plugin,
        FakeKubelet(root, wipe=_nothing, times=kubelet_times()) as kubelet,
    ):
        assert plugin.registered.wait(TIMEOUT_S)
        gate = plugin.operations.gate(ONE.uid)
        pods = [
            Thread(target=kubelet.prepare, args=(pod, _claims(ONE, driver=DRIVER)))
            for pod in ("pod-1", "pod-2")
        ]
        for pod in pods:
            pod.start()
        eventually(lambda: len(plugin.operations.calls) == 2, TIMEOUT_S, "both calls")
        gate.open.set()
        for pod in pods:
            pod.join(TIMEOUT_S)
        assert len(kubelet.devices(ONE.uid)) == 1


def test_prepare_fails_and_goes_on_in_the_driver_when_the_kubelet_gives_up(root: Path) -> None:
    manners = Manners(cancel_after_s=0.1)
    with (
        running(root) as plugin,
        FakeKubelet(root, wipe=_nothing, times=kubelet_times(), manners=manners) as kubelet,
    ):
        assert plugin.registered.wait(TIMEOUT_S)
        gate = plugin.operations.gate(ONE.uid)
        with pytest.raises(KubeletError, match="code = Canceled"):
            kubelet.prepare("pod-1", _claims(ONE, driver=DRIVER))
        gate.open.set()
        eventually(lambda: plugin.operations.finished, TIMEOUT_S, "the driver's end")


def test_prepare_fails_with_the_deadline_when_the_driver_is_too_slow(root: Path) -> None:
    with (
        running(root) as plugin,
        FakeKubelet(root, wipe=_nothing, times=kubelet_times(call_s=0.1)) as kubelet,
    ):
        assert plugin.registered.wait(TIMEOUT_S)
        gate = plugin.operations.gate(ONE.uid)
        with pytest.raises(KubeletError, match="code = DEADLINE_EXCEEDED"):
            kubelet.prepare("pod-1", _claims(ONE, driver=DRIVER))
        gate.open.set()


def test_prepare_fails_when_no_driver_is_there(root: Path) -> None:
    with (
        FakeKubelet(root, wipe=_nothing, times=kubelet_times()) as kubelet,
        pytest.raises(KubeletError, match=f"DRA driver {DRIVER} is not registered"),
    ):
        kubelet.prepare("pod-1", _claims(ONE, driver=DRIVER))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"type": "DRA"}, "no handler registered for plugin type: DRA at socket"),
        ({"supported_versions": []}, "empty list of supported gRPC services"),
        (
            {"supported_versions": ["k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"]},
            "none of services supported by the plugin",
        ),
    ],
)
def test_registration_is_refused_in_the_kubelets_words_and_tried_again(
    root: Path, options: dict[str, Any], text: str
) -> None:
    with (
        FakeKubelet(root, wipe=_nothing, times=kubelet_times()) as kubelet,
        serving(root, **options) as plugin,
    ):
        eventually(lambda: len(plugin.notified) >= 2, TIMEOUT_S, "two refusals")
        accepted, error = plugin.notified[0]
        assert not accepted
        assert error.startswith("RegisterPlugin error -- ")
        assert text in error
        assert kubelet.endpoints(FAKE) == ()


def test_registration_is_taken_back_when_the_driver_answers_with_an_error(root: Path) -> None:
    with (
        FakeKubelet(root, wipe=_nothing, times=kubelet_times()) as kubelet,
        serving(root, failing_notify=True) as plugin,
    ):
        eventually(lambda: len(plugin.notified) >= 2, TIMEOUT_S, "a second try")
        plugin.failing_notify = False
        eventually(lambda: kubelet.endpoints(FAKE), TIMEOUT_S, "registration")


def test_prepare_fails_when_the_endpoint_has_a_scheme(root: Path) -> None:
    with (
        _pair(root, endpoint=f"unix://{root}/plugins/{FAKE}/dra.sock") as (kubelet, _),
        pytest.raises(KubeletError, match="NodePrepareResources: rpc error"),
    ):
        kubelet.prepare("pod-1", _claims(ONE))


def test_the_first_known_version_in_the_drivers_order_is_called(root: Path) -> None:
    order = ["v9.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAPlugin"]
    with _pair(root, supported_versions=order) as (kubelet, _):
        assert kubelet.endpoint(FAKE).service == "v1beta1.DRAPlugin"


def test_wipe_is_tried_again_when_it_failed_and_comes_once_per_loss(root: Path) -> None:
    wipes: list[int] = []
    again = Event()

    def wipe() -> None:
        wipes.append(1)
        if len(wipes) > 4:
            again.set()
        if len(wipes) == 1:
            raise AdapterError("API server is away")

    with FakeKubelet(root, wipe=wipe, times=kubelet_times()) as kubelet:
        eventually(lambda: len(wipes) == 2, TIMEOUT_S, "a second try")
        with serving(root):
            eventually(lambda: _connected(kubelet), TIMEOUT_S, "a connection")
        eventually(lambda: len(wipes) == 3, TIMEOUT_S, "the wipe after the loss")
        with serving(root):
            eventually(lambda: _connected(kubelet), TIMEOUT_S, "a connection")
        eventually(lambda: len(wipes) == 4, TIMEOUT_S, "the wipe after the second loss")
        assert not again.wait(0.5)


def test_wipe_does_not_come_when_the_driver_is_back_in_time(root: Path) -> None:
    wipes: list[int] = []
    times = kubelet_times(wipe_s=30.0)
    with FakeKubelet(root, wipe=lambda: wipes.append(1), times=times) as kubelet:
        for _ in range(2):
            with serving(root):
                eventually(lambda: _connected(kubelet), TIMEOUT_S, "a connection")
        eventually(lambda: wipes, TIMEOUT_S, "the wipe of the start")
        assert len(wipes) == 1


@contextmanager
def _pair(
    root: Path, *, manners: Manners | None = None, **options: Any
) -> Iterator[tuple[FakeKubelet, FakeDraPlugin]]:
    with (
        serving(root, **options) as plugin,
        FakeKubelet(root, wipe=_nothing, times=kubelet_times(), manners=manners) as kubelet,
    ):
        eventually(lambda: kubelet.endpoints(FAKE), TIMEOUT_S, "registration")
        yield kubelet, plugin


def _claims(*refs: ClaimRef, driver: str = FAKE) -> tuple[KubeletClaim, ...]:
    return tuple(KubeletClaim(ref=each, drivers=(driver,)) for each in refs)


def _connected(kubelet: FakeKubelet) -> bool:
    return any(each.connected for each in kubelet.endpoints(FAKE))


def _nothing() -> None:
    pass
