"""What becomes of neighbours when something dies."""

from __future__ import annotations

import signal
import time
from typing import Any

from tests.gpu.mps import Daemon
from tests.gpu.site import Client, Site, try_client
from tests.gpu.steps.values import Step

_MPS = frozenset({"mps"})


def terminate_client(site: Site) -> dict[str, Any]:
    with Daemon(site) as daemon:
        daemon.call("start_server -uid 0")
        share = daemon.control_only()
        with Client(site, pipe=share) as victim, Client(site, pipe=share) as other:
            found: dict[str, Any] = {"victim": victim.ask("init"), "other": other.ask("init")}
            victim.ask("spin", seconds=3 * site.pace, wait=False)
            server = (daemon.servers() or [0])[0]
            found["terminate"] = daemon.timed(f"terminate_client {server} {victim.pid}")
            found["victim_sync"] = victim.ask("sync")
            found["victim_alloc"] = victim.ask("alloc", mib=1)
            found["other_rate"] = other.ask("rate", seconds=0.5 * site.pace)
            found["new_client"] = try_client(site, pipe=share)
            found["unknown_client"] = daemon.timed(f"terminate_client {server} 1")
        found["status"] = [daemon.call(f"get_server_status {each}") for each in daemon.servers()]
        return found


def killed_in_kernel(site: Site) -> dict[str, Any]:
    with Daemon(site) as daemon:
        daemon.call("start_server -uid 0")
        share = daemon.control_only()
        with Client(site, pipe=share) as victim, Client(site, pipe=share) as other:
            found: dict[str, Any] = {"victim": victim.ask("init"), "other": other.ask("init")}
            found["rate_before"] = other.ask("rate", seconds=0.5 * site.pace)
            victim.ask("spin", seconds=4 * site.pace, wait=False)
            victim.signal(signal.SIGKILL)
            found["rate_after"] = other.ask("rate", seconds=0.5 * site.pace)
            found["new_client"] = try_client(site, pipe=share)
            found["servers"] = daemon.servers()
            found["status"] = [daemon.timed(f"get_server_status {s}") for s in found["servers"]]
            found["shutdown"] = [daemon.timed(f"shutdown_server {s} -f") for s in found["servers"]]
            found["other_after_shutdown"] = other.ask("alloc", mib=1)
        daemon.call("start_server -uid 0")
        site.pause(1)
        found["after_recovery"] = try_client(site, pipe=share)
        found["log"] = daemon.log_end()
        return found


def daemon_killed(site: Site) -> dict[str, Any]:
    with Daemon(site) as daemon:
        daemon.call("set_default_active_thread_percentage 50", "start_server -uid 0")
        share = daemon.control_only()
        with Client(site, pipe=share) as one:
            found: dict[str, Any] = {"init": one.ask("init")}
            servers = daemon.servers()
            daemon.kill()
            site.pause(1)
            found["client_alloc"] = one.ask("alloc", mib=16)
            found["client_spin"] = one.ask("spin", seconds=0.01)
            found["new_client_old_link"] = try_client(site, pipe=share)
            found["servers_before"] = servers
            found["servers_alive"] = [each for each in servers if _alive(each)]
            begun_s = time.monotonic()
            found["restart"] = daemon.start() or "answers"
            found["restart_seconds"] = round(time.monotonic() - begun_s, 3)
            found["setting_after"] = daemon.call("get_default_active_thread_percentage")
            found["old_link_after"] = try_client(site, pipe=share)
            found["new_link_after"] = try_client(site, pipe=daemon.control_only())
            found["client_after"] = one.ask("spin", seconds=0.01)
        found["log"] = daemon.log_end()
        return found


def exclusive_bypass(site: Site) -> dict[str, Any]:
    """What a process outside MPS gets on a GPU in exclusive mode that a server holds."""
    with Daemon(site) as daemon:
        daemon.call("start_server -uid 0")
        share = daemon.control_only()
        with Client(site, pipe=share) as one:
            return {
                "client": one.ask("init"),
                "outside": try_client(site),
                "client_without_variable": _without_variable(site, daemon),
                "client_goes_on": one.ask("spin", seconds=0.01),
            }


def _without_variable(site: Site, daemon: Daemon) -> dict[str, Any]:
    with Client(site, pipe=daemon.control_only()) as one:
        one.ask("env", CUDA_MPS_PIPE_DIRECTORY=None)
        return one.ask("init")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


FAILURE_STEPS = (
    Step(
        name="terminate_client",
        budget_s=40,
        asks="9.9.8: reply and duration of terminate_client, and what the victim gets",
        run=terminate_client,
        needs=_MPS,
    ),
    Step(
        name="exclusive_bypass",
        budget_s=40,
        asks="9.9.11: does exclusive mode keep others off a server's GPU (46)",
        run=exclusive_bypass,
        needs=frozenset({"mps", "exclusive"}),
    ),
    Step(
        name="daemon_killed",
        budget_s=50,
        asks="9.9.14: a live client after its daemon was killed, and after a restart",
        run=daemon_killed,
        needs=_MPS,
    ),
    Step(
        name="killed_in_kernel",
        budget_s=50,
        asks="9.9.7: neighbours and server after a client was killed within a kernel",
        run=killed_in_kernel,
        needs=_MPS,
    ),
)
