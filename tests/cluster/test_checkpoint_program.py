"""The program gpuslice-hook in the chain of kubelet, containerd, runc and CRIU, without the driver."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dra_driver.checkpoint.raw_line import Marker, Phase, RawRequest, decode, veto
from tests import native_programs
from tests.cluster.checkpoint_runtime import wait_at_work
from tests.cluster.checkpoint_site import Checkpoints, counting, restored_from
from tests.cluster.checkpoint_specs import claim_with, hook
from tests.cluster.life_site import Tenant
from tests.kube.client import ApiError
from tests.kube.cluster import Cluster
from tests.kube.criu import clear_criu, configure_criu
from tests.native.hook import Answer, FakeDriver, hang

_SOCKET = "/run/checkpoint-hook.sock"
_NAME = "gpuslice-hook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """The program on a node, where CRIU calls it."""

    cluster: Cluster
    path: Path

    def driver(self, answer: Answer = b"OK\n") -> FakeDriver:
        """Give what answers it inside the context; outside there is nobody."""
        socket = self.cluster.node_path(_SOCKET)
        socket.unlink(missing_ok=True)
        return FakeDriver(socket, answer)

    def claim(self, checkpoints: Checkpoints) -> str:
        """Make the claim ``gpu``, in whose spec the hook stands; gives its UID."""
        phases = ("createRuntime", "poststop")
        return claim_with(checkpoints, *(hook(self.path, each, "oci", each) for each in phases))


@pytest.fixture(scope="module")
def program(criu_on_node: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hook]:
    built = native_programs.build(tmp_path_factory.mktemp("native"))[_NAME]
    path = criu_on_node.cell.programs / _NAME
    path.write_bytes(built.read_bytes())
    path.chmod(0o755)
    link = path.with_name(f"{_NAME}.socket")
    link.symlink_to(_SOCKET)
    yield Hook(cluster=criu_on_node, path=path)
    path.unlink()
    link.unlink()


@pytest.fixture
def installed(program: Hook) -> Iterator[Hook]:
    """The program as CRIU's action script."""
    configure_criu(program.cluster, f"action-script {program.path}")
    yield program
    clear_criu(program.cluster)
    program.cluster.node_path(_SOCKET).unlink(missing_ok=True)


def test_driver_hears_of_each_phase_when_a_gpu_pod_is_checkpointed_and_restored(
    checkpoints: Checkpoints, installed: Hook
) -> None:
    site = checkpoints.site
    installed.claim(checkpoints)
    with installed.driver() as driver:
        source = _start(checkpoints)
        assert driver.requests == []
        archive = checkpoints.take("source")
        site.unchanged(source)
        dump = _decoded(driver)
        site.delete("source")
        site.wait_gone("source")
        driver.requests.clear()
        site.create_with("restored", "gpu", **restored_from(checkpoints.image(archive)))
        restored = checkpoints.counting("restored")
        wait_at_work(site.cluster, restored)
        restore = _decoded(driver)

    assert [each.head.phase for each in dump] == [
        Phase.PRE_DUMP,
        Phase.POST_DUMP,
        Phase.NETWORK_UNLOCK,
    ]
    assert {each.head.pid for each in dump} == {source.pid}
    assert len({(each.head.criu, each.head.criu_started) for each in dump}) == 1
    assert dump[0].head.marker is Marker.YES
    assert [each.head.phase for each in restore] == [
        Phase.PRE_RESTORE,
        Phase.CREATE_RUNTIME,
        Phase.POST_RESTORE,
        Phase.NETWORK_UNLOCK,
        Phase.PRE_RESUME,
        Phase.POST_RESUME,
    ]
    assert [each.head.pid for each in restore] == [None, None, *[restored.pid] * 4]
    container = restored.container.removeprefix("containerd://")
    assert container in str(restore[0].head.images)
    assert f'"id":"{container}"'.encode() in restore[1].body


def test_gpu_pod_runs_on_when_the_driver_refuses_its_checkpoint(
    checkpoints: Checkpoints, installed: Hook
) -> None:
    installed.claim(checkpoints)
    source = _start(checkpoints)
    with installed.driver(veto("not with this share")) as driver:
        with pytest.raises(ApiError, match="criu failed"):
            checkpoints.take("source")
        assert [each.head.phase for each in _decoded(driver)] == [Phase.PRE_DUMP]
    wait_at_work(checkpoints.site.cluster, source)
    assert checkpoints.archives() == frozenset()


@pytest.mark.parametrize("driver", ["away", "hanging"])
def test_gpu_pod_is_neither_checkpointed_nor_restored_without_an_answer(
    checkpoints: Checkpoints, installed: Hook, driver: str
) -> None:
    site = checkpoints.site
    installed.claim(checkpoints)
    source = _start(checkpoints)
    with installed.driver():
        archive = checkpoints.take("source")
    image = checkpoints.image(archive)
    if driver == "hanging":
        with installed.driver(hang), pytest.raises(ApiError, match="criu failed"):
            checkpoints.take("source")
    else:
        with pytest.raises(ApiError, match="criu failed"):
            checkpoints.take("source")
    wait_at_work(site.cluster, source)
    site.unchanged(source)
    if driver == "away":
        site.create_with("restored", "gpu", **restored_from(image))
        site.wait_event("restored", "error running hook", "gpuslice-hook")


@pytest.mark.parametrize("answer", [None, b"OK\n", hang], ids=["away", "there", "hanging"])
def test_pod_without_gpus_is_checkpointed_whatever_the_driver_does(
    checkpoints: Checkpoints, installed: Hook, answer: Answer | None
) -> None:
    source = checkpoints.start_counting("source")
    if answer is None:
        checkpoints.take("source")
    else:
        with installed.driver(answer):
            checkpoints.take("source")
    wait_at_work(checkpoints.site.cluster, source)
    checkpoints.site.unchanged(source)


def test_pod_without_gpus_is_restored_before_the_driver_is_asked(
    checkpoints: Checkpoints, installed: Hook
) -> None:
    site = checkpoints.site
    checkpoints.start_counting("source")
    archive = checkpoints.take("source")
    site.delete("source")
    site.wait_gone("source")
    with installed.driver() as driver:
        site.create("restored", **restored_from(checkpoints.image(archive)))
        wait_at_work(site.cluster, checkpoints.counting("restored"))
        phases = [each.head.phase for each in _decoded(driver)]
    assert phases[0] is Phase.POST_RESTORE


def _start(checkpoints: Checkpoints) -> Tenant:
    checkpoints.site.create_with("source", "gpu", **counting())
    return checkpoints.counting("source")


def _decoded(driver: FakeDriver) -> list[RawRequest]:
    return [decode(each) for each in driver.requests]
