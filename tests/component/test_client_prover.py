"""The proof by a CUDA client, with a stub of libcuda."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.adapters.client_prover import CudaProver
from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.model.mps import Proof
from tests.builders import uuid
from tests.fakes.cuda_stub import CudaStub

GPU = uuid(0)


@pytest.fixture(scope="module")
def stub() -> Iterator[CudaStub]:
    with tempfile.TemporaryDirectory() as folder:
        # Another user is to come by.
        Path(folder).chmod(0o755)
        yield CudaStub(Path(folder))


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """A folder that holds `control` alone."""
    folder = tmp_path / "share"
    folder.mkdir()
    (folder / "control").touch()
    return folder


def _prover(stub: CudaStub, run_dir: Path, *, uid: int | None = None) -> CudaProver:
    programs = DriverPrograms(driver_root=stub.driver_root, run_dir=run_dir)
    return CudaProver(programs, uid=uid, timeout_s=60.0)


def test_client_that_connects_is_proof_when_the_gpu_is_exclusive(
    stub: CudaStub, tmp_path: Path, share: Path
) -> None:
    stub.behave("ok")
    assert _prover(stub, tmp_path).prove(GPU, share) == Proof(control_only=True)


def test_client_that_connects_proves_nothing_when_all_get_the_gpu(
    stub: CudaStub, tmp_path: Path, share: Path
) -> None:
    stub.behave("not-exclusive")
    proof = _prover(stub, tmp_path).prove(GPU, share)
    assert proof.control_only is None
    assert "EXCLUSIVE_PROCESS" in proof.reason


def test_client_that_needs_more_than_control_is_disproof(
    stub: CudaStub, tmp_path: Path, share: Path
) -> None:
    stub.behave("needs-log")
    proof = _prover(stub, tmp_path).prove(GPU, share)
    assert proof.control_only is False
    assert "cuDevicePrimaryCtxRetain gives CUDA error 805" in proof.reason


def test_client_that_bypasses_the_daemon_is_disproof(stub: CudaStub, tmp_path: Path) -> None:
    stub.behave("ok")
    proof = _prover(stub, tmp_path).prove(GPU, tmp_path / "nowhere")
    assert proof.control_only is False
    assert "CUDA error 46" in proof.reason


def test_client_that_hangs_is_killed_and_disproof(
    stub: CudaStub, tmp_path: Path, share: Path
) -> None:
    stub.behave("hang")
    programs = DriverPrograms(driver_root=stub.driver_root, run_dir=tmp_path)
    proof = CudaProver(programs, timeout_s=1.0).prove(GPU, share)
    assert proof.control_only is False
    assert "it hung for 1 s and was killed" in proof.reason


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("no-device", "cuInit gives CUDA error 100"),
        ("full", "the limits that are set leave no room"),
        ("crash", "the CUDA client ended (status -6)"),
    ],
)
def test_client_that_fails_by_other_means_proves_nothing(
    stub: CudaStub, tmp_path: Path, share: Path, behaviour: str, reason: str
) -> None:
    stub.behave(behaviour)
    proof = _prover(stub, tmp_path).prove(GPU, share)
    assert proof.control_only is None
    assert reason in proof.reason


def test_nothing_is_proved_without_libcuda(tmp_path: Path, share: Path) -> None:
    programs = DriverPrograms(driver_root=tmp_path / "none", run_dir=tmp_path)
    proof = CudaProver(programs).prove(GPU, share)
    assert proof.control_only is None
    assert "no libcuda.so.1" in proof.reason


@pytest.mark.root
def test_client_runs_as_the_user_of_the_server(stub: CudaStub) -> None:
    stub.behave("only-uid")
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "control").touch()
        assert _prover(stub, folder / "run").prove(GPU, folder).control_only is False
        proof = _prover(stub, folder / "run", uid=1000).prove(GPU, folder)
        assert proof == Proof(control_only=True)
