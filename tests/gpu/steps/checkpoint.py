"""The driver's checkpoint interface, on a plain process and on an MPS client."""

from __future__ import annotations

import signal
from typing import Any

from tests.gpu.mps import Daemon
from tests.gpu.site import Client, Site
from tests.gpu.steps.values import Step

_SIZES_MIB = (0, 16, 256, 1024)
_ACTIONS = ("Lock", "Checkpoint", "Restore", "Unlock")
_BRANCH = 570
_LONG_S = 30.0


def plain(site: Site) -> dict[str, Any]:
    """Times, contents and use of memory of a process that is checkpointed and restored."""
    found: dict[str, Any] = {}
    for size in _SIZES_MIB if site.pace == 1 else _SIZES_MIB[:2]:
        with Client(site) as target, Client(site) as helper:
            helper.ask("start")
            target.ask("init")
            if size:
                target.ask("alloc", mib=size)
                target.ask("fill")
            before = target.ask("digest", within_s=_LONG_S)
            steps = {each: _act(helper, each, target) for each in ("GetState", *_ACTIONS[:2])}
            steps["free"] = _free(site)
            steps |= {each: _act(helper, each, target) for each in (*_ACTIONS[2:], "GetState")}
            after = target.ask("digest", within_s=_LONG_S)
            found[str(size)] = {"steps": steps, "before": before, "after": after}
    return found


def mps_client(site: Site) -> dict[str, Any]:
    """What the interface says of an MPS client, and whether its neighbour goes on."""
    with Daemon(site) as daemon:
        daemon.call("start_server -uid 0")
        share = daemon.control_only()
        with (
            Client(site, pipe=share) as target,
            Client(site, pipe=share) as other,
            Client(site) as helper,
        ):
            found: dict[str, Any] = {"target": target.ask("init"), "other": other.ask("init")}
            helper.ask("start")
            found["rate"] = other.ask("rate", seconds=0.5 * site.pace)
            found["calls"] = {
                each: _act(helper, each, target) for each in ("GetState", "GetRestoreThreadId")
            }
            found["frozen"] = _frozen(site, daemon, target, other)
            found["calls"] |= {
                each: _act(helper, each, target) for each in ("Lock", "Checkpoint", "Unlock")
            }
            found["rate_after"] = other.ask("rate", seconds=0.5 * site.pace)
            found["target_after"] = target.ask("alloc", mib=1)
        found["log"] = daemon.log_end()
        return found


def _frozen(site: Site, daemon: Daemon, target: Client, other: Client) -> dict[str, Any]:
    """The neighbour while a client is stopped within a kernel."""
    target.ask("spin", seconds=1 * site.pace, wait=False)
    target.signal(signal.SIGSTOP)
    try:
        return {
            "other_rate": other.ask("rate", seconds=2 * site.pace),
            "clients": daemon.clients(),
        }
    finally:
        target.signal(signal.SIGCONT)


def _act(helper: Client, action: str, target: Client) -> dict[str, Any]:
    return helper.ask("checkpoint", action=action, pid=target.pid, within_s=_LONG_S)


def _free(site: Site) -> dict[str, Any]:
    with Client(site) as one:
        one.ask("init")
        return one.ask("info")


CHECKPOINT_STEPS = (
    Step(
        name="checkpoint_mps",
        budget_s=60,
        asks="T8: checkpoint calls on an MPS client; a neighbour while a client is stopped",
        run=mps_client,
        needs=frozenset({"mps"}),
        oldest=_BRANCH,
    ),
    Step(
        name="checkpoint_plain",
        budget_s=90,
        asks="T2: times and contents of processes that are checkpointed and restored",
        run=plain,
        oldest=_BRANCH,
    ),
)
