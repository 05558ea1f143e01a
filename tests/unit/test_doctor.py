"""What is thought of what a node has."""

from __future__ import annotations

import pytest

from dra_driver.model.capability import ApiCapability
from dra_driver.model.device import GpuUuid, Inventory, UnreadableGpu
from dra_driver.model.doctor import Verdict
from dra_driver.model.mps import ComputeMode, GpuSharing, MpsPhase, Proof
from dra_driver.plan.doctor import (
    judge_api,
    judge_driver,
    judge_foreign,
    judge_gpus,
    judge_mode,
    judge_sharing,
)
from tests.builders import gpu

GPU = GpuUuid("GPU-1")


@pytest.mark.parametrize(
    ("version", "verdicts"),
    [
        ("470.1", "ok problem warning warning"),
        ("535.261.03", "ok warning warning warning"),
        ("550.163.01", "ok ok warning warning"),
        ("555.58.02", "ok ok ok warning"),
        ("570.133.20", "ok ok ok ok"),
        ("615.71.09", "ok ok ok ok"),
        (None, "warning"),
    ],
)
def test_judge_driver_tells_what_a_branch_allows(version: str | None, verdicts: str) -> None:
    found = judge_driver(Inventory(driver_version=version))
    assert " ".join(each.verdict for each in found) == verdicts


def test_judge_driver_tells_checkpoint_versions() -> None:
    def text(version: str) -> str:
        return judge_driver(Inventory(driver_version=version))[-1].text

    assert "same GPU; another one from 580" in text("570.1")
    assert "onto another GPU" in text("580.1")
    assert "CUDA IPC" not in text("580.1")
    assert "CUDA IPC" in text("610.1")


def test_judge_gpus_lists_each_that_cannot_be_read() -> None:
    lost = UnreadableGpu(label="index 1", text="it is lost")
    mig = gpu(2, mig_enabled=True)
    found = judge_gpus(Inventory(gpus=(gpu(0), mig), unreadable=(lost,)))
    assert [each.verdict for each in found] == [Verdict.OK, Verdict.WARNING, Verdict.PROBLEM]
    assert "-mig 0" in found[1].mend
    assert (found[2].subject, found[2].text) == ("gpu index 1", "it is lost")


@pytest.mark.parametrize(
    ("mode", "shares", "foreign", "verdict"),
    [
        (ComputeMode.DEFAULT, (), (), Verdict.OK),
        (ComputeMode.DEFAULT, ("a",), (), Verdict.WARNING),
        (ComputeMode.PROHIBITED, (), (), Verdict.PROBLEM),
        (ComputeMode.EXCLUSIVE_PROCESS, ("a",), (), Verdict.OK),
        (ComputeMode.EXCLUSIVE_PROCESS, (), (), Verdict.PROBLEM),
        (ComputeMode.EXCLUSIVE_PROCESS, (), (7,), Verdict.PROBLEM),
        (ComputeMode.EXCLUSIVE_PROCESS, None, (), Verdict.WARNING),
    ],
)
def test_judge_mode_asks_whose_exclusive_mode_it_is(
    mode: ComputeMode, shares: tuple[str, ...] | None, foreign: tuple[int, ...], verdict: Verdict
) -> None:
    found = judge_mode(GPU, mode, shares=shares, foreign=foreign)
    assert found.verdict is verdict
    assert ("MPS daemon of others" in found.text) == bool(foreign)
    assert bool(found.mend) == (verdict is not Verdict.OK and mode is not ComputeMode.DEFAULT)


def test_judge_foreign_names_the_processes() -> None:
    assert judge_foreign(GPU, ()).verdict is Verdict.OK
    assert "7, 9" in judge_foreign(GPU, (7, 9)).text


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (GpuSharing(gpu=GPU), Verdict.OK),
        (GpuSharing(gpu=GPU, phase=MpsPhase.FAULT, message="it died"), Verdict.PROBLEM),
        (GpuSharing(gpu=GPU, refusal="too old"), Verdict.WARNING),
        (GpuSharing(gpu=GPU, proof=Proof(control_only=False, reason="807")), Verdict.WARNING),
        (GpuSharing(gpu=GPU, proof=Proof(control_only=True)), Verdict.OK),
    ],
)
def test_judge_sharing_passes_on_why(state: GpuSharing, verdict: Verdict) -> None:
    found = judge_sharing(state)
    assert found.verdict is verdict
    reason = state.message or state.refusal or (state.proof.reason if state.proof else "")
    assert reason in found.text


@pytest.mark.parametrize(
    ("minor", "consumable", "verdicts"),
    [(33, True, "problem"), (34, False, "ok warning ok"), (36, True, "ok ok ok")],
)
def test_judge_api_tells_version_and_gates(minor: int, consumable: bool, verdicts: str) -> None:  # noqa: FBT001
    found = judge_api(
        ApiCapability(major=1, minor=minor, git_version="", consumable=consumable, taints=True)
    )
    assert " ".join(each.verdict for each in found) == verdicts
