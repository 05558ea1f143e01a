"""What a client needs to see of its daemon, and what it can do with it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.gpu.mps import Daemon
from tests.gpu.site import UNPRIVILEGED, Client, Site
from tests.gpu.steps.values import Step

_MPS = frozenset({"mps"})
_SETTINGS = (
    "set_default_active_thread_percentage 77",
    "set_default_device_pinned_mem_limit 0 7168M",
    "quit",
)


def connected(site: Site, daemon: Daemon, **client: Any) -> dict[str, Any]:
    """Whether a client works, and whether the daemon's server has it."""
    with Client(site, **client) as one:
        started = one.ask("init")
        served = daemon.clients()
        alloc = one.ask("alloc", mib=64) if started.get("code") == 0 else {}
        return {
            "init": started,
            "alloc": alloc,
            "served": served,
            "client": one.pid,
            "through_mps": bool(served),
        }


def control_only(site: Site) -> dict[str, Any]:
    with Daemon(site) as daemon:
        started = daemon.timed("start_server -uid 0")
        site.pause(2)
        found = {"start_server": started, "servers": daemon.servers()}
        found["folder"] = sorted(path.name for path in daemon.pipe.iterdir())
        found["whole_folder"] = connected(site, daemon, pipe=daemon.pipe)
        share = daemon.control_only()
        found["hard_link"] = connected(site, daemon, pipe=share)
        found["folder_with_server"] = sorted(path.name for path in daemon.pipe.iterdir())
        found["own_namespaces"] = _unshared(site, daemon, share, "--pid", "--fork", "--kill-child")
        found["read_only_bind"] = _read_only(site, daemon, share)
        found["user_1000"] = connected(site, daemon, pipe=share, uid=UNPRIVILEGED)
        found["log"] = daemon.log_end()
        return found


def shared_memory(site: Site) -> dict[str, Any]:
    """With an empty /dev/shm of its own, and own IPC namespace."""
    with Daemon(site) as daemon:
        daemon.call("start_server -uid 0")
        share = daemon.control_only()
        return {
            "own_dev_shm": _unshared(
                site, daemon, share, "--ipc", script="mount -t tmpfs none /dev/shm"
            ),
            "log": daemon.log_end(),
        }


def privileges(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, uid, whole in (
        ("root_control_only", None, False),
        ("user_control_only", UNPRIVILEGED, False),
        ("user_whole_folder", UNPRIVILEGED, True),
        ("root_whole_folder", None, True),
    ):
        with Daemon(site) as daemon:
            pipe = daemon.pipe if whole else daemon.control_only()
            found[name] = {each: daemon.call(each, uid=uid, pipe=pipe) for each in _SETTINGS}
            found[name]["after"] = daemon.call(
                "get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0"
            )
    return found


def several_users(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for flags in ((), ("-multiuser-server",), ("-M",)):
        try:
            with Daemon(site, flags=flags) as daemon:
                daemon.call("start_server -uid 0")
                site.pause(1)
                found[" ".join(flags) or "no flag"] = _two_users(site, daemon)
        except RuntimeError as error:
            found[" ".join(flags)] = {"refused": str(error)[-300:]}
    return found


def _two_users(site: Site, daemon: Daemon) -> dict[str, Any]:
    share = daemon.control_only()
    with Client(site, pipe=share) as first, Client(site, pipe=share, uid=UNPRIVILEGED) as second:
        return {
            "root": first.ask("init"),
            "user": second.ask("init", within_s=6),
            "served": daemon.clients(),
            "servers": daemon.servers(),
        }


def _unshared(
    site: Site, daemon: Daemon, share: Path, *flags: str, script: str = ""
) -> dict[str, Any]:
    program = shutil.which("unshare")
    if program is None:
        return {"not_tried": "there is no unshare"}
    prefix = (program, "--mount", *flags)
    if script:
        prefix = (*prefix, "sh", "-c", f'{script} && exec "$@"', "sh")
    return connected(site, daemon, pipe=share, prefix=prefix)


def _read_only(site: Site, daemon: Daemon, share: Path) -> dict[str, Any]:
    """As a container has it: a read-only bind mount elsewhere."""
    place = site.folder("mounted")
    script = f"mount --bind {share} {place} && mount -o remount,bind,ro {place}"
    return _unshared(site, daemon, place, script=script)


EXPOSURE_STEPS = (
    Step(
        name="control_only",
        budget_s=60,
        asks="9.9.1: does a client connect with `control` alone, as other user, in namespaces",
        run=control_only,
        needs=_MPS,
    ),
    Step(
        name="shared_memory",
        budget_s=30,
        asks="9.9.2: does a client need the daemon's /dev/shm or IPC namespace",
        run=shared_memory,
        needs=_MPS,
    ),
    Step(
        name="privileges",
        budget_s=30,
        asks="9.9.3: who can set limits and quit through which socket",
        run=privileges,
        needs=_MPS,
    ),
    Step(
        name="several_users",
        budget_s=60,
        asks="9.9.6: clients of two users at once, with and without the multi-user flags",
        run=several_users,
        needs=_MPS,
    ),
)
