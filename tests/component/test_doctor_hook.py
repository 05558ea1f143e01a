"""What the doctor says of the checkpoint hook, on a folder that stands for a host."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path

import pytest

from dra_driver.app.doctor_hook import (
    criu_config,
    criu_program,
    cuda_tools,
    hook_program,
    hook_sockets,
    judge_criu,
)
from dra_driver.model.doctor import Finding, Verdict
from dra_driver.plan.criu_config import merge
from dra_driver.settings import Settings, load

HOOK = "/opt/gpuslice/bin/gpuslice-hook"
OK, WARNING, PROBLEM = Verdict.OK, Verdict.WARNING, Verdict.PROBLEM


class Host:
    def __init__(self, root: Path) -> None:
        self.root = root

    def settings(self, *, on: bool, **flags: str) -> Settings:
        return load(
            {
                "host_root": str(self.root),
                "run_dir": str(self.root / "run"),
                "checkpoint_hook": str(on).lower(),
                **flags,
            }
        )

    def write(self, name: str, text: str, *, mode: int = 0o644) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(tmp_path_factory.mktemp("h"))


def verdicts(findings: Iterable[Finding]) -> list[Verdict]:
    return [each.verdict for each in findings]


def test_hook_that_is_off_and_not_there_is_fine(host: Host) -> None:
    settings = host.settings(on=False)
    assert hook_program(settings).verdict is OK
    assert verdicts(criu_config(settings)) == [OK]
    assert criu_program(settings).verdict is OK
    assert verdicts(hook_sockets(settings)) == []


def test_hook_that_is_on_and_not_there_is_a_problem(host: Host) -> None:
    settings = host.settings(on=True)
    # Without the image there is nothing to compare with.
    assert hook_program(settings).verdict is WARNING
    assert verdicts(criu_config(settings)) == [PROBLEM]
    assert criu_program(settings).verdict is PROBLEM
    assert verdicts(hook_sockets(settings)) == [PROBLEM, PROBLEM]


def test_hook_that_is_left_over_is_told_with_the_way_out(host: Host) -> None:
    host.write(HOOK[1:], "", mode=0o755)
    settings = host.settings(on=False)
    found = hook_program(settings)
    assert found.verdict is WARNING
    assert "checkpoint-hook-off" in found.mend


# Only root's files are taken for what root relies on.
@pytest.mark.root
@pytest.mark.parametrize(
    ("content", "on", "off"),
    [
        (merge(None, HOOK), OK, PROBLEM),
        (merge(None, "/opt/other/gpuslice-hook"), PROBLEM, PROBLEM),
        (f"action-script {HOOK}\n", PROBLEM, PROBLEM),
        (merge(None, HOOK).replace("action-script", "#action-script"), PROBLEM, PROBLEM),
        ('log-file "x\n', PROBLEM, WARNING),
        ("tcp-established\n", PROBLEM, OK),
    ],
)
def test_configuration_of_criu_is_judged(
    host: Host, content: str, on: Verdict, off: Verdict
) -> None:
    host.write("etc/criu/runc.conf", content)
    assert verdicts(criu_config(host.settings(on=True))) == [on]
    assert verdicts(criu_config(host.settings(on=False))) == [off]


def test_sockets_that_answer_are_found(host: Host) -> None:
    settings = host.settings(on=True, checkpoint_socket=str(host.root / "c.sock"))
    (host.root / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as hook, socket.socket(socket.AF_UNIX) as service:
        hook.bind(str(host.root / "run/hook.sock"))
        service.bind(str(host.root / "c.sock"))
        hook.listen()
        service.listen()
        assert verdicts(hook_sockets(settings)) == [OK, OK]
    assert verdicts(hook_sockets(settings)) == [PROBLEM, PROBLEM]


def test_cuda_is_not_looked_for_on_simulated_gpus(host: Host) -> None:
    assert verdicts(cuda_tools(host.settings(on=True, simulate="mixed"))) == [OK]


def test_missing_tools_for_cuda_matter_where_the_hook_is_on(host: Host) -> None:
    flags = {"driver_root": str(host.root)}
    assert verdicts(cuda_tools(host.settings(on=True, **flags))) == [WARNING] * 3
    assert verdicts(cuda_tools(host.settings(on=False, **flags))) == [OK] * 3


@pytest.mark.parametrize(
    ("output", "verdict"),
    [
        ("Version: 4.2.1\nGitID: v4.2.1\n", OK),
        ("Version: 4.1\n", OK),
        ("Version: 4.0\n", WARNING),
        ("Version: 3.17.1\n", WARNING),
        ("Version: 10.0\n", OK),
        ("", WARNING),
    ],
)
def test_old_criu_is_told(output: str, verdict: Verdict) -> None:
    assert judge_criu(Path("/usr/sbin/criu"), output, "not found").verdict is verdict
