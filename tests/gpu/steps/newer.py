"""What newer drivers can do beside what is used now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.gpu.mps import Daemon, call
from tests.gpu.site import Client, Site
from tests.gpu.steps.values import Step

_MPS = frozenset({"mps"})


def partitions(site: Site) -> dict[str, Any]:
    """Static partitions of SMs."""
    with Daemon(site, flags=("-S",)) as daemon:
        found: dict[str, Any] = {"list": daemon.call("lspart")}
        found["add"] = daemon.call(f"sm_partition add {site.gpu} 2")
        daemon.call("start_server -uid 0")
        share = daemon.control_only()
        name = next((each for each in found["add"].split() if "/" in each), "")
        for label, env in (("without", {}), ("with", {"CUDA_MPS_SM_PARTITION": name})):
            with Client(site, pipe=share, env=env) as one:
                found[label] = one.ask("init")
        found["list_after"] = daemon.call("lspart", "device_query")
        return found


def namespaces(site: Site) -> dict[str, Any]:
    """Version 3: a namespace with limits, and a client in it."""
    with Daemon(site, flags=("-p", "3"), env={"CUDA_MPS_PROTOCOL_VERSION": "3"}) as daemon:
        found: dict[str, Any] = {
            "server": daemon.call(f"server create one --uid 0 --allowed-devices={site.gpu}"),
            "servers": daemon.call("server list"),
            "namespace": daemon.call(
                "namespace create share --server=one --active-thread-percentage=25 "
                f"--pinned-memory-limit={site.gpu}=1024M"
            ),
            "namespaces": daemon.call("namespace list"),
        }
        leaf = daemon.pipe / "one" / "share"
        env = {"CUDA_MPS_PROTOCOL_VERSION": "3"}
        with Client(site, pipe=leaf, env=env) as one:
            found["client"] = one.ask("init")
            found["over"] = one.ask("alloc", mib=2048)
        found["tree"] = sorted(
            str(path.relative_to(daemon.pipe)) for path in daemon.pipe.rglob("*")
        )
        found["control_through_leaf"] = call(site, leaf, "server list")
        return found


def memory_cgroup(_site: Site) -> dict[str, Any]:
    """Which cgroup files a per-cgroup memory limit would use."""
    root = Path("/sys/fs/cgroup")
    return {
        "controllers": _read(root / "cgroup.controllers"),
        "dmem": _read(root / "dmem.capacity"),
        "misc": _read(root / "misc.capacity"),
    }


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None


NEWER_STEPS = (
    Step(
        name="partitions",
        budget_s=40,
        asks="9.9.15: static SM partitions",
        run=partitions,
        needs=_MPS,
        oldest=590,
    ),
    Step(
        name="namespaces",
        budget_s=40,
        asks="9.9.13: MPS version 3, a namespace with limits",
        run=namespaces,
        needs=_MPS,
        oldest=615,
    ),
    Step(
        name="memory_cgroup",
        budget_s=10,
        asks="9.9.13: cgroup controllers for device memory",
        run=memory_cgroup,
        oldest=615,
    ),
)
