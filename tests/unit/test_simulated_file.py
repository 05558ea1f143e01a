"""A simulated node that is edited while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from time import monotonic, process_time

import pytest

from dra_driver.adapters.simulated import SimulatedGpus
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.sysfs import Sysfs
from dra_driver.errors import AdapterError, SettingsError
from dra_driver.model.health import GpuEvent
from tests.builders import BOOT, gpu, uuid
from tests.fakes.gpu_node import CallFault, NodeState, simulation_text, write_whole

TWO = NodeState(gpus=(gpu(0), gpu(1)))
NO_UTF_8 = "gpus: []  # \xff"  # as it is written in Latin-1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "node.yaml"
    path.write_text(simulation_text(TWO))
    return path


@pytest.fixture
def gpus(path: Path) -> Iterator[SimulatedGpus]:
    gpus = SimulatedGpus(SimulationFile(path, node_name="node-a"), sysfs=Sysfs(path.parent))
    yield gpus
    gpus.close()


@pytest.mark.parametrize("content", [None, "gpus: [", "gpus: [{uuid: 7}]", "", NO_UTF_8])
def test_start_refuses_a_file_that_is_no_node(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "node.yaml"
    if content is not None:
        path.write_text(content, encoding="latin-1")

    with pytest.raises(SettingsError, match="--simulate") as caught:
        SimulationFile(path, node_name="node-a")

    assert str(path) in str(caught.value)


def test_inventory_follows_an_edit(gpus: SimulatedGpus, path: Path) -> None:
    assert len(gpus.inventory().gpus) == 2

    write_whole(path, simulation_text(replace(TWO, gpus=(gpu(0), gpu(1), gpu(2)))))

    assert len(gpus.inventory().gpus) == 3


def test_wait_events_returns_early_when_the_inventory_may_have_changed(
    gpus: SimulatedGpus, path: Path
) -> None:
    gpus.inventory()
    waited_s: list[float] = []

    def wait() -> None:
        start_s = monotonic()
        assert gpus.wait_events(30) == ()
        waited_s.append(monotonic() - start_s)

    waiter = Thread(target=wait, name="waiter")
    waiter.start()
    write_whole(path, simulation_text(replace(TWO, gpus=(gpu(0),))))
    waiter.join(30)

    assert waited_s[0] < 2


def test_wait_events_does_not_spin(gpus: SimulatedGpus) -> None:
    gpus.inventory()
    before_s = process_time()

    assert gpus.wait_events(1) == ()

    assert process_time() - before_s < 0.3


def test_wait_events_gives_an_event_again_when_it_was_taken_out_and_put_in(
    gpus: SimulatedGpus, path: Path
) -> None:
    once = replace(TWO, events=((uuid(0), 79),))
    event = GpuEvent(uuid=uuid(0), xid=79)
    write_whole(path, simulation_text(once))
    assert gpus.wait_events(5) == (event,)

    write_whole(path, simulation_text(replace(TWO, events=((uuid(0), 79), (uuid(0), 79)))))
    assert gpus.wait_events(5) == (event,)
    write_whole(path, simulation_text(TWO))
    gpus.inventory()
    assert gpus.wait_events(0) == ()
    write_whole(path, simulation_text(once))

    assert gpus.wait_events(5) == (event,)


@pytest.mark.parametrize("content", ["gpus: [", "gpus: []\nnew: 1", None, NO_UTF_8])
def test_inventory_fails_and_the_last_node_stays_when_an_edit_is_malformed(
    path: Path, content: str | None
) -> None:
    file = SimulationFile(path, node_name="node-a")
    gpus = SimulatedGpus(file, sysfs=Sysfs(path.parent))
    gpus.inventory()
    if content is None:
        path.unlink()
    else:
        write_whole(path, content, encoding="latin-1")

    assert gpus.wait_events(5) == ()
    for _ in range(2):
        with pytest.raises(AdapterError, match="until the file is mended") as caught:
            gpus.inventory()
    assert str(path) in str(caught.value)
    assert len(file.last_good().gpus) == 2
    # The library does not report the same broken file as a change again and again.
    start_s = monotonic()
    assert gpus.wait_events(0.3) == ()
    assert monotonic() - start_s >= 0.3

    write_whole(path, simulation_text(TWO))
    assert len(gpus.inventory().gpus) == 2


def test_fault_hits_as_often_as_it_says_also_when_the_file_is_edited(
    gpus: SimulatedGpus, path: Path
) -> None:
    text = simulation_text(TWO).replace(
        '"faults": []',
        f'"faults": [{{"gpu": "{uuid(1)}", "call": "handle", "error": "UNKNOWN", "times": 2}}]',
    )
    write_whole(path, text)
    assert len(gpus.inventory().gpus) == 1

    write_whole(path, f"# edited\n{text}")

    assert len(gpus.inventory().gpus) == 1
    assert len(gpus.inventory().gpus) == 2


def test_fault_without_error_only_delays(gpus: SimulatedGpus, path: Path) -> None:
    text = simulation_text(TWO).replace(
        '"faults": []', '"faults": [{"call": "enumerate", "delay": "200ms"}]'
    )
    write_whole(path, text)
    start_s = monotonic()

    assert len(gpus.inventory().gpus) == 2

    assert monotonic() - start_s >= 0.2


def test_boot_id_is_the_files_else_the_machines(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("gpus: []")
    machine = tmp_path / "proc/sys/kernel/random/boot_id"
    machine.parent.mkdir(parents=True)
    machine.write_text(f"{BOOT}\n")
    gpus = SimulatedGpus(SimulationFile(path, node_name="node-a"), sysfs=Sysfs(tmp_path))

    assert gpus.boot_id() == BOOT
    write_whole(path, "gpus: []\nbootId: other")
    assert gpus.boot_id() == "other"


def test_boot_id_fails_when_it_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="--host-root"):
        Sysfs(tmp_path).boot_id()


def test_inventory_does_without_versions_that_cannot_be_read(
    gpus: SimulatedGpus, path: Path
) -> None:
    faults = tuple(
        CallFault(call=call, error="UNKNOWN") for call in ("driverVersion", "cudaVersion")
    )
    write_whole(path, simulation_text(replace(TWO, faults=faults)))

    inventory = gpus.inventory()

    assert inventory.driver_version is inventory.cuda_version is None
    assert len(inventory.gpus) == 2
