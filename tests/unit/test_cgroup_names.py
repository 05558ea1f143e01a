from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.adapters.cgroup_names import pod_and_container

UID = "6f0e2a31-5c1d-4f0e-9a1b-0123456789ab"
OTHER = "11111111-2222-4333-8444-555555555555"
LOW = UID.replace("-", "_")
STATIC = "0123456789abcdef" * 2
ID, NODE = "ab" * 32, "cd" * 32


@pytest.mark.parametrize(
    ("path", "pod", "container"),
    [
        # systemd and cgroupfs, each quality of service, the runtimes' names
        (
            (
                f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{LOW}.slice"
                f"/cri-containerd-{ID}.scope"
            ),
            UID,
            ID,
        ),
        (f"/kubepods.slice/kubepods-pod{LOW}.slice/crio-{ID}.scope", UID, ID),
        (f"/kubepods.slice/kubepods-pod{LOW}.slice/crio-{ID}.scope/container", UID, ID),
        (f"/kubepods.slice/kubepods-pod{LOW}.slice/crio-conmon-{ID}.scope", UID, None),
        (
            (
                f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{LOW}.slice"
                f"/docker-{ID}.scope/init"
            ),
            UID,
            ID,
        ),
        (f"/kubepods/burstable/pod{UID}/{ID}", UID, ID),
        (f"/kubepods/pod{UID}/crio-{ID}", UID, ID),
        (f"/kubepods/pod{UID.upper()}/{ID}", UID, ID),
        (f"/kubepods/burstable/pod{STATIC}/{ID}", STATIC, ID),
        (f"/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{ID}.scope", STATIC, ID),
        # a prefix of the kubelet, k3s, and systemd's names where the runtime does without it
        (f"/gpuslice-test-3/kubepods/besteffort/pod{UID}/{ID}", UID, ID),
        (f"/k8s.io/kubepods/besteffort/pod{UID}/{ID}", UID, ID),
        (
            (
                f"/system.slice/containerd.service/kubepods-burstable-pod{LOW}.slice"
                f":cri-containerd:{ID}"
            ),
            UID,
            ID,
        ),
        # a node that is a container (kind), or runs in a pod itself
        (
            (
                f"/system.slice/docker-{NODE}.scope/kubelet.slice/kubelet-kubepods.slice"
                f"/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{LOW}.slice"
                f"/cri-containerd-{ID}.scope"
            ),
            UID,
            ID,
        ),
        (f"/docker/{NODE}/kubelet/kubepods/pod{UID}/{ID}", UID, ID),
        (f"/kubepods/pod{OTHER}/{NODE}/kubepods/burstable/pod{UID}/{ID}", UID, ID),
        # as a process in a cgroup namespace of its own sees others
        (f"/../../kubepods-burstable-pod{LOW}.slice/cri-containerd-{ID}.scope", UID, ID),
        (f"/../cri-containerd-{ID}.scope", None, ID),
        # a pod's own cgroup, containers outside pods, and neither
        (f"/kubepods/pod{UID}", UID, None),
        (f"/kubepods/pod{UID}/{ID} (deleted)", UID, ID),
        (f"/kubepods/pod{UID}/workers/{ID}", UID, ID),
        (f"/system.slice/docker-{ID}.scope", None, ID),
        (f"/machine.slice/libpod-{ID}.scope/container", None, ID),
        (f"/docker/{NODE}/docker/{ID}", None, ID),
        ("/user.slice/user-1000.slice/session-2.scope", None, None),
        ("/", None, None),
        # much like it
        (f"/kubepods/pod{UID}x/{ID}", None, ID),
        (f"/kubepods/{UID}/{ID[:-1]}", None, None),
        ("/podman/pods/podium", None, None),
    ],
)
@pytest.mark.parametrize("version", ["0::{}", "12:cpu,cpuacct:/user.slice\n9:name=systemd:{}"])
def test_pod_and_container_reads_the_layout(
    version: str, path: str, pod: str | None, container: str | None
) -> None:
    assert pod_and_container(f"{version.format(path)}\n") == (pod, container)


@given(st.text())
def test_pod_and_container_never_raises(text: str) -> None:
    pod_and_container(text)
    pod_and_container(f"0::/{text}")


@given(st.lists(st.sampled_from(["pod", UID, LOW, ID, "-", "/", ":", ".slice", ".scope", "\n"])))
def test_pod_and_container_gives_whole_names_alone(parts: list[str]) -> None:
    pod, container = pod_and_container(f"0::/{''.join(parts)}")
    assert pod in (None, UID)
    assert container in (None, ID)
