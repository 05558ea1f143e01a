"""What every TimeSlicer keeps: run alike on nvidia-smi, played by a script, and on a simulation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.simulated_sharing import SimulatedTimeSlicer
from dra_driver.adapters.time_slicer import NvidiaSmi
from dra_driver.errors import AdapterError, NotFound
from dra_driver.model.share import TimeSlice
from dra_driver.ports import TimeSlicer
from tests.builders import gpu, uuid
from tests.fakes.gpu_node import CallFault, NodeState, simulation_text, write_whole

PLAYED = {
    "": "exit 0",
    "NOT_SUPPORTED": (
        "echo 'Failed to set timeslice policy with value Long for GPU 0 : Not Supported'; exit 3"
    ),
    "UNKNOWN": "echo 'Unknown Error' >&2; exit 255",
}


def script(folder: Path, *lines: str) -> Path:
    path = folder / "nvidia-smi"
    write_whole(path, "\n".join(("#!/bin/sh", f'echo "$@" >> {folder}/calls', *lines, "")))
    path.chmod(0o755)
    return path


def smi(folder: Path, *lines: str, timeout_s: float = 30.0) -> NvidiaSmi:
    return NvidiaSmi(
        str(script(folder, *lines)), environment={"PATH": "/usr/bin:/bin"}, timeout_s=timeout_s
    )


def played(folder: Path, error: str = "") -> TimeSlicer:
    return smi(folder, PLAYED[error])


def simulated(folder: Path, error: str = "") -> TimeSlicer:
    path = folder / "node.yaml"
    faults = (CallFault(call="setTimeSlice", error=error, gpu=uuid(0)),) if error else ()
    write_whole(path, simulation_text(NodeState(gpus=(gpu(0),), faults=faults)))
    return SimulatedTimeSlicer(SimulationFile(path, node_name="node-a"), run_dir=folder)


MAKERS = pytest.mark.parametrize("make", [played, simulated])
Make = Callable[[Path, str], TimeSlicer]


@MAKERS
def test_set_interval_sets_and_resets_as_often_as_asked(make: Make, tmp_path: Path) -> None:
    slicer = make(tmp_path, "")
    for interval in (TimeSlice.LONG, TimeSlice.LONG, TimeSlice.DEFAULT, TimeSlice.DEFAULT):
        slicer.set_interval(uuid(0), interval)


@MAKERS
@pytest.mark.parametrize(("error", "permanent"), [("NOT_SUPPORTED", True), ("UNKNOWN", False)])
def test_set_interval_fails_for_good_only_when_the_board_has_no_such_setting(
    make: Make, tmp_path: Path, error: str, *, permanent: bool
) -> None:
    slicer = make(tmp_path, error)
    for interval in (TimeSlice.LONG, TimeSlice.DEFAULT):
        with pytest.raises(AdapterError, match=f"time slice of GPU {uuid(0)}") as caught:
            slicer.set_interval(uuid(0), interval)
        assert caught.value.permanent is permanent


def test_nvidia_smi_is_called_with_uuid_and_number(tmp_path: Path) -> None:
    slicer = smi(tmp_path)
    for interval in TimeSlice:
        slicer.set_interval(uuid(0), interval)
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"compute-policy -i {uuid(0)} --set-timeslice={number}" for number in range(4)
    ]


@pytest.mark.parametrize(
    ("line", "permanent", "text"),
    [
        (PLAYED["NOT_SUPPORTED"], True, "leave timeSlice out of the claim's config"),
        ("echo 'Feature is Not Supported'", True, "(status 0): Feature is Not Supported; this boa"),
        ("exit 13", True, "(status 13); this board has no such setting"),
        ("echo 'Failed to set it'", False, "(status 0): Failed to set it; it is tried again"),
        ("echo 'Option not recognized'; exit 2", True, "install GPU driver 455 or later"),
        ("echo 'Insufficient Permissions' >&2; exit 4", False, "run the plugin as root"),
        ("kill -9 $$", False, "(status -9); it is tried again"),
        ("seq 1 1000; exit 1", False, " 100 "),
    ],
)
def test_nvidia_smi_tells_what_to_do_when_it_fails(
    tmp_path: Path, line: str, *, permanent: bool, text: str
) -> None:
    with pytest.raises(AdapterError) as caught:
        smi(tmp_path, line).set_interval(uuid(0), TimeSlice.LONG)
    assert caught.value.permanent is permanent
    assert str(caught.value).startswith(
        f"nvidia-smi cannot set the time slice of GPU {uuid(0)} to Long (status"
    )
    assert text in str(caught.value)
    assert len(str(caught.value)) < 500


def test_nvidia_smi_tells_when_the_gpu_is_gone(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No devices were found; the GPU is not there"):
        smi(tmp_path, "echo 'No devices were found'; exit 6").set_interval(uuid(0), TimeSlice.LONG)


def test_nvidia_smi_is_ended_when_it_hangs(tmp_path: Path) -> None:
    slicer = smi(tmp_path, "echo waiting", "exec sleep 300", timeout_s=0.5)
    with pytest.raises(AdapterError, match=r"did not end within 0\.5 s: waiting; look at") as error:
        slicer.set_interval(uuid(0), TimeSlice.LONG)
    assert not error.value.permanent


def test_nvidia_smi_that_is_missing_is_named(tmp_path: Path) -> None:
    slicer = NvidiaSmi(str(tmp_path / "none"), environment={})
    with pytest.raises(AdapterError, match=f"cannot start nvidia-smi \\({tmp_path}/none\\)"):
        slicer.set_interval(uuid(0), TimeSlice.LONG)
