from __future__ import annotations

from pathlib import Path
from time import monotonic

import grpc
import pytest

from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.pod_resources import KubeletPodResources
from dra_driver.errors import AdapterError
from dra_driver.model.deadline import Deadline
from dra_driver.model.owner import PodClaims
from tests.fakes.pod_resources import FakeKubelet, pod, serving


def ask(root: Path, *, within_s: float = 30.0) -> tuple[PodClaims, ...]:
    kubelet = KubeletPodResources(root / "k.sock", clock=SystemClock())
    return kubelet.pods(Deadline(monotonic() + within_s))


def test_pods_are_containers_with_claims_in_order(root: Path) -> None:
    kubelet = FakeKubelet(
        pod("z", main=("b", "a", "a"), idle=()),
        pod("a", namespace="team-b", main=("a",)),
        pod("a", main=("c",), aside=("c",)),
    )
    with serving(root / "k.sock", kubelet):
        found = ask(root)
        kubelet.pods = ()
        assert ask(root) == ()

    names = [(each.namespace, each.pod, each.container, each.claims) for each in found]
    assert names == [
        ("team-a", "a", "aside", ("c",)),
        ("team-a", "a", "main", ("c",)),
        ("team-a", "z", "main", ("a", "b")),
        ("team-b", "a", "main", ("a",)),
    ]
    assert found[2].cdi_ids == tuple(
        f"gpuslice.io/gpu={each}" for each in ("a-0", "a-1", "b-0", "b-1")
    )


def test_pods_are_given_when_the_answer_is_of_several_megabytes(root: Path) -> None:
    claims = tuple(f"claim-{number:04}-{'x' * 200}" for number in range(1000))
    kubelet = FakeKubelet(*(pod(f"pod-{number}", main=claims) for number in range(6)))
    with serving(root / "k.sock", kubelet):
        found = ask(root)
    assert [len(each.claims) for each in found] == [1000] * 6


def test_pods_fail_when_the_answer_is_too_large(root: Path) -> None:
    kubelet = FakeKubelet(pod("x" * (17 << 20), main=("a",)))
    with serving(root / "k.sock", kubelet), pytest.raises(AdapterError, match="too large"):
        ask(root)


def test_pods_fail_and_name_the_flag_when_nobody_listens(root: Path) -> None:
    with pytest.raises(AdapterError, match="--pod-resources-socket") as caught:
        ask(root)
    assert str(root / "k.sock") in str(caught.value)


@pytest.mark.parametrize(
    ("code", "way_out"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "too often"),
        (grpc.StatusCode.UNIMPLEMENTED, "another service"),
        (grpc.StatusCode.INTERNAL, "log"),
    ],
)
def test_pods_fail_when_the_kubelet_refuses(
    root: Path, code: grpc.StatusCode, way_out: str
) -> None:
    kubelet = FakeKubelet()
    kubelet.refusal = (code, "said the kubelet")
    with serving(root / "k.sock", kubelet), pytest.raises(AdapterError, match=way_out) as caught:
        ask(root)
    assert "said the kubelet" in str(caught.value)


def test_pods_fail_at_the_deadline_when_the_kubelet_does_not_answer(root: Path) -> None:
    kubelet = FakeKubelet()
    kubelet.held = True
    with serving(root / "k.sock", kubelet), pytest.raises(AdapterError, match="kubelet's log"):
        ask(root, within_s=0.3)


def test_pods_are_those_of_the_new_kubelet_when_it_was_restarted(root: Path) -> None:
    kubelet = KubeletPodResources(root / "k.sock", clock=SystemClock())
    for name in ("before", "after"):
        with serving(root / "k.sock", FakeKubelet(pod(name, main=("a",)))):
            assert [each.pod for each in kubelet.pods(Deadline(monotonic() + 30))] == [name]
        (root / "k.sock").unlink(missing_ok=True)


def test_connection_is_kept_and_made_anew_when_the_kubelet_was_away(root: Path) -> None:
    path = root / "k.sock"
    kubelet = KubeletPodResources(path, clock=SystemClock())
    served = FakeKubelet(pod("a", main=("c",)))
    with serving(path, served):
        first = connections(path) if kubelet.pods(Deadline(monotonic() + 30)) else set()
        for _ in range(3):
            assert len(kubelet.pods(Deadline(monotonic() + 30))) == 1
        assert len(first) == 1
        assert connections(path) == first
    path.unlink(missing_ok=True)
    path.touch()
    with pytest.raises(AdapterError, match="--pod-resources-socket"):
        kubelet.pods(Deadline(monotonic() + 30))
    path.unlink()
    with serving(path, served):
        assert len(kubelet.pods(Deadline(monotonic() + 30))) == 1


def connections(path: Path) -> set[str]:
    """Those that are open at the server's end, by inode."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    found = (line.split() for line in lines if line.endswith(f" {path}"))
    return {fields[6] for fields in found if fields[5] == "03"}


def test_pods_are_those_of_the_socket_in_place_when_an_older_one_still_answers(root: Path) -> None:
    path = root / "k.sock"
    kubelet = KubeletPodResources(path, clock=SystemClock())
    with serving(path, FakeKubelet(pod("before", main=("a",)))):
        assert [each.pod for each in kubelet.pods(Deadline(monotonic() + 30))] == ["before"]
        path.unlink()
        with serving(path, FakeKubelet(pod("after", main=("a",)))):
            assert [each.pod for each in kubelet.pods(Deadline(monotonic() + 30))] == ["after"]
