"""The runner of the questions to a GPU: it ends whatever a step does, and puts back what it set."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gpu.fake import fake_site
from tests.gpu.nvml import DEFAULT, EXCLUSIVE_PROCESS
from tests.gpu.runner import _mode, ask, ask_all, end_strays, main
from tests.gpu.site import Client, Site
from tests.gpu.steps import STEPS, step_named
from tests.waiting import eventually

CONTROL = step_named("privileges")
EXCLUSIVE = step_named("exclusive_bypass")


class FakeModes:
    """Remembers every mode that was set, the first being that of before."""

    def __init__(self, before: int) -> None:
        self.modes = [before]

    def compute_mode(self, gpu: str) -> int:
        return self.modes[-1]

    def set_compute_mode(self, gpu: str, mode: int) -> None:
        self.modes.append(mode)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(work=str(tmp_path), control="/nowhere/control", driver="580.1", nvml=False)


@pytest.fixture
def fake(tmp_path: Path) -> Site:
    site = fake_site(str(tmp_path))
    assert site is not None
    return site


def test_steps_have_names_of_their_own_and_follow_the_facts() -> None:
    names = [step.name for step in STEPS]
    assert len(set(names)) == len(names)
    assert names[0] == "facts"


def test_ask_kills_a_step_at_its_budget_with_all_that_it_started(site: Site) -> None:
    mute = Path(site.work, "mute")
    mute.write_text(f"#!/bin/sh\necho $$ >> {site.work}/pids\nexec sleep 600\n")
    mute.chmod(0o755)

    answer = ask(CONTROL, replace(site, control=str(mute)), budget_s=3)

    pids = [int(pid) for pid in Path(site.work, "pids").read_text().split()]
    assert (answer["step"], answer["status"]) == ("privileges", "timed out")
    assert set(pids) & set(answer["ended_by_force"])
    eventually(lambda: not any(_runs(pid) for pid in pids), 30, "all are ended")


def test_ask_says_why_a_step_failed(site: Site) -> None:
    answer = ask(CONTROL, site, budget_s=60)
    assert answer["status"] == "failed"
    assert "/nowhere/control" in answer["error"]
    assert "result" not in answer


def test_ask_all_goes_on_after_a_failure_and_stops_when_the_time_is_over(fake: Site) -> None:
    site = replace(fake, control="/nowhere/control")
    steps = (CONTROL, step_named("memory_cgroup"))
    report = ask_all(steps, site, total_s=60, modes=FakeModes(DEFAULT))
    assert [each["status"] for each in report["steps"]] == ["failed", "ok"]
    late = ask_all(steps, site, total_s=0, modes=FakeModes(DEFAULT))
    assert {each["reason"] for each in late["steps"]} == {"no time is left"}
    assert json.loads(json.dumps(report)) == report


def test_ask_all_leaves_out_what_the_site_cannot_do(site: Site) -> None:
    report = ask_all(STEPS[1:], replace(site, control=""), total_s=0, modes=FakeModes(DEFAULT))
    reasons = {each["step"]: each["reason"] for each in report["steps"]}
    assert reasons["memory"].startswith("there is no nvidia-cuda-mps-control")
    assert reasons["namespaces"] == "driver 580.1 is older than 615"
    assert reasons["checkpoint_plain"] == "no time is left"


def test_ask_all_touches_no_compute_mode_unless_it_may(fake: Site) -> None:
    modes = FakeModes(DEFAULT)
    ask_all((EXCLUSIVE, step_named("memory_cgroup")), fake, total_s=60, modes=modes)
    assert modes.modes == [DEFAULT]


@pytest.mark.parametrize("before", [DEFAULT, EXCLUSIVE_PROCESS])
def test_ask_all_puts_the_compute_mode_back_when_the_step_fails(site: Site, before: int) -> None:
    modes = FakeModes(before)
    report = ask_all((EXCLUSIVE,), replace(site, exclusive=True), total_s=60, modes=modes)
    assert modes.modes == [before, EXCLUSIVE_PROCESS, before]
    (answer,) = report["steps"]
    assert (answer["status"], answer["mode_before"], answer["mode_after"]) == (
        "failed",
        before,
        before,
    )


def test_mode_is_put_back_when_the_run_is_ended(site: Site) -> None:
    modes = FakeModes(DEFAULT)
    with pytest.raises(SystemExit), _mode(EXCLUSIVE, site, modes):
        raise SystemExit(143)
    assert modes.modes == [DEFAULT, EXCLUSIVE_PROCESS, DEFAULT]


def test_client_drops_answers_that_come_too_late(fake: Site) -> None:
    with Client(fake) as client:
        assert client.ask("init")["sm"] == 100
        assert client.ask("spin", seconds=0.5, within_s=0.05) == {"hung": True}
        eventually(lambda: client.ask("info").get("total_mib") == 16384, 30, "it answers again")
        assert client.ask("alloc", mib=9000) == {"code": 2}
        client.signal(signal.SIGKILL)
        assert client.ask("info") == {"ended": -9}


def test_end_strays_spares_other_runs(tmp_path: Path) -> None:
    mine, other = (
        subprocess.Popen(["sleep", "600"], env={"GPU_TEST_WORK": str(tmp_path / name)})
        for name in ("a", "ab")
    )
    with mine, other:
        assert end_strays(str(tmp_path / "a")) == [mine.pid]
        assert mine.wait(30) == -9
        assert other.poll() is None
        other.kill()


def test_dry_run_lists_the_steps_and_tries_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "answers.json"
    status = main(["--dry-run", "--only", "memory", "facts", "--out", str(out)])
    shown = capsys.readouterr().out
    assert status == 0
    assert "memory (30 s): 9.9.4" in shown
    assert shown.endswith("facts: ok\nmemory: ok\n")
    results = {each["step"]: each["result"] for each in json.loads(out.read_text())["steps"]}
    assert results["memory"]["half"] == {"code": 0}


@pytest.mark.root
def test_dry_run_tries_every_step() -> None:
    script = Path(__file__).parents[1] / "gpu/run"
    ended = subprocess.run(
        [sys.executable, script, "--dry-run"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    tried = dict(line.split()[:2] for line in ended.stderr.splitlines())
    skipped = {name[:-1] for name, status in tried.items() if status == "skipped"}
    assert len(tried) == len(STEPS)
    assert skipped == {"nvml_processes", "exclusive_bypass"}


def test_script_needs_the_standard_library_alone() -> None:
    script = Path(__file__).parents[1] / "gpu/run"
    python = shutil.which("python3", path="/usr/bin") or sys.executable
    ended = subprocess.run(
        [python, "-I", "-S", script, "--help"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z" and pid != os.getpid()
