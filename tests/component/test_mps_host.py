"""The supervisor inside a plugin, while another plugin of the node still runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from dra_driver.app.gpus import open_gpus
from dra_driver.app.mps_host import HostedSupervisor, StatedInventory, host_supervisor
from dra_driver.app.mps_parts import FitGpus, mpsd_lock
from dra_driver.errors import AdapterError, NotFound, NotReady
from dra_driver.model.device import Inventory
from dra_driver.model.mps import GpuSharing, MpsPhase
from dra_driver.settings import Settings
from dra_driver.sockets import only_process
from dra_driver.state.current import Current
from tests.builders import gpu, inventory, uuid
from tests.component.node_rig import simulation
from tests.fakes.recorder import FakeRecorder
from tests.wire.mpsd import share, soon


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "node.yaml"
    file.write_text(simulation(1))
    return Settings(simulate=str(file), run_dir=tmp_path / "run", node_name="node-a")


@contextmanager
def _hosted(settings: Settings) -> Iterator[HostedSupervisor]:
    stop = Event()
    with (
        open_gpus(settings) as gpus,
        host_supervisor(settings, gpus=gpus, recorder=FakeRecorder()) as hosted,
    ):
        loop = Thread(target=hosted.run, args=(stop,), name="mps-supervisor")
        loop.start()
        try:
            yield hosted
        finally:
            stop.set()
            loop.join(30)


def _now(hosted: HostedSupervisor) -> GpuSharing:
    watch = hosted.watch()
    try:
        (state,) = next(iter(watch))
        return state
    finally:
        watch.close()


def test_shares_are_held_at_once_when_no_other_plugin_runs(settings: Settings) -> None:
    with _hosted(settings) as hosted:
        hosted.apply(uuid(0), (share("a"),), soon())
        state = _now(hosted)
        assert (state.phase, state.shares, state.simulated) == (MpsPhase.ACTIVE, ("a",), True)
        with pytest.raises(NotFound):
            hosted.terminate_client(uuid(0), 4711, soon())
    assert not mpsd_lock(settings).exists()


def test_nothing_is_done_while_another_plugin_runs(settings: Settings) -> None:
    lock = mpsd_lock(settings)
    with only_process(lock, what="holds the shares of this node"), _hosted(settings) as hosted:
        with pytest.raises(NotReady, match=str(lock)):
            hosted.apply(uuid(0), (share("a"),), soon(0.0))
        with pytest.raises(AdapterError, match=str(lock)):
            hosted.terminate_client(uuid(0), 4711, soon())
        assert _now(hosted) == GpuSharing(gpu=uuid(0), simulated=True)
        (ability,) = hosted.abilities(inventory(gpu(0, mps_control_only=True)))
        assert ability.tier == "standard"
        assert sorted(path.name for path in settings.run_dir.iterdir()) == ["mpsd.lock"]


def test_shares_are_taken_over_when_the_other_plugin_ends(settings: Settings) -> None:
    with ExitStack() as ending:
        first = ending.enter_context(_hosted(settings))
        first.apply(uuid(0), (share("a"),), soon())
        before = _now(first)
        with _hosted(settings) as second:
            states = iter(second.watch())
            assert next(states) == (GpuSharing(gpu=uuid(0), simulated=True),)
            shares = (share("a"), share("b"))
            call = Thread(target=second.apply, args=(uuid(0), shares, soon()), name="apply")
            call.start()
            assert _now(first) == before
            ending.close()
            assert list(states) == []
            call.join(30)
            after = _now(second)
            assert (after.phase, after.shares) == (MpsPhase.ACTIVE, ("a", "b"))
            assert (after.daemon_pid, after.restarts) == (before.daemon_pid, 0)


def test_stated_inventory_is_the_same_object_until_the_file_says_otherwise(
    settings: Settings,
) -> None:
    with open_gpus(settings) as gpus:
        stated = StatedInventory(gpus)
        first = stated()
        assert first is not None
        assert stated() is first
        Path(settings.simulate or "").write_text(simulation(2))
        second = stated()
        assert second is not None
        assert len(second.gpus) == len(first.gpus) + 1


def test_gpus_that_can_be_shared_are_worked_out_once_for_each_inventory() -> None:
    newest = Current[Inventory | None](None)
    fit = FitGpus(newest.get)
    assert fit() == ()
    newest.set(inventory(gpu(0), gpu(1, mig_enabled=True)))
    first = fit()
    assert first == (uuid(0),)
    assert fit() is first
    newest.set(inventory(gpu(0), gpu(1)))
    assert fit() == (uuid(0), uuid(1))
