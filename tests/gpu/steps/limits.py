"""What limits do."""

from __future__ import annotations

from typing import Any

from tests.gpu import nvml
from tests.gpu.mps import Daemon
from tests.gpu.site import Client, Site
from tests.gpu.steps.values import Step

_MPS = frozenset({"mps"})
_LIMIT = "set_default_device_pinned_mem_limit 0 1024M"
_VARIABLE = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_SHARES = (1, 5, 10, 25, 33, 50, 75, 90, 100)
_OTHER = "GPU-00000000-0000-0000-0000-000000000000"


def memory(site: Site) -> dict[str, Any]:
    with Daemon(site) as daemon:
        daemon.call(_LIMIT, "start_server -uid 0")
        with Client(site, pipe=daemon.control_only()) as one:
            found = {"init": one.ask("init"), "before": one.ask("info")}
            found["half"] = one.ask("alloc", mib=512)
            found["after_half"] = one.ask("info")
            found["over"] = one.ask("alloc", mib=2048)
            found["small_after_over"] = one.ask("alloc", mib=64)
            found["spin"] = one.ask("spin", seconds=0.01)
        found["log"] = daemon.log_end(600)
        return found


def escapes(site: Site) -> dict[str, Any]:
    """Which environment lets 2 GiB through under a server's limit of 1 GiB."""
    found: dict[str, Any] = {}
    with Daemon(site) as daemon:
        daemon.call(_LIMIT, "start_server -uid 0")
        share = daemon.control_only()
        for name, value in (
            ("none", None),
            ("lower", "0=512M"),
            ("higher", "0=8192M"),
            ("empty", ""),
            ("junk", "junk"),
            ("no_such_ordinal", "7=1G"),
            ("no_such_gpu", f"{_OTHER}=1G"),
            ("own_and_no_such_gpu", f"0=1G,{_OTHER}=1G"),
        ):
            env = {} if value is None else {_VARIABLE: value}
            with Client(site, pipe=share, env=env) as one:
                found[name] = _over(one)
    with Daemon(site) as daemon:
        daemon.call("start_server -uid 0")
        for name in ("client_only", "client_only_unset"):
            env = {_VARIABLE: "0=1024M"}
            with Client(site, pipe=daemon.control_only(name), env=env) as one:
                if name == "client_only_unset":
                    one.ask("env", **{_VARIABLE: None})  # type: ignore[arg-type]
                found[name] = _over(one)
    return found


def _over(one: Client) -> dict[str, Any]:
    return {
        "init": one.ask("init").get("code"),
        "info": one.ask("info"),
        "alloc_700": one.ask("alloc", mib=700).get("code"),
        "alloc_2048": one.ask("alloc", mib=2048).get("code"),
    }


def percentages(site: Site) -> dict[str, Any]:
    """SMs that clients see, by the server's ceiling and by their own variable."""
    found: dict[str, Any] = {"client": {}, "server": {}}
    with Daemon(site) as daemon:
        daemon.call("start_server -uid 0")
        share = daemon.control_only()
        for percent in _SHARES:
            env = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{percent}.0"}
            with Client(site, pipe=share, env=env) as one:
                found["client"][percent] = one.ask("init").get("sm")
        server = (daemon.servers() or [0])[0]
        for percent in (25, 50):
            reply = daemon.call(f"set_active_thread_percentage {server} {percent}")
            for own in (None, "100.0"):
                env = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": own} if own else {}
                with Client(site, pipe=share, env=env) as one:
                    found["server"][f"{percent}, client {own}"] = {
                        "reply": reply,
                        "sm": one.ask("init").get("sm"),
                    }
    return found


def nvml_processes(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = {"idle": nvml.processes(site.gpu)}
    with Daemon(site) as daemon:
        daemon.call("start_server -uid 0")
        site.pause(1)
        found["server_alone"] = nvml.processes(site.gpu)
        with (
            Client(site, pipe=daemon.control_only()) as first,
            Client(site, pipe=daemon.control_only()) as second,
        ):
            found["first"], found["second"] = first.ask("init"), second.ask("init")
            found["with_contexts"] = nvml.processes(site.gpu)
            first.ask("alloc", mib=1024)
            found["first_holds_1024"] = nvml.processes(site.gpu)
        found["servers"], found["daemon"] = daemon.servers(), daemon.pid
    return found


def uuid_operand(site: Site) -> dict[str, Any]:
    with Daemon(site) as daemon:
        limit = "get_default_device_pinned_mem_limit"
        return {
            "before": daemon.call("set_default_device_pinned_mem_limit 0 2048M", f"{limit} 0"),
            "set": daemon.call(f"set_default_device_pinned_mem_limit {site.gpu} 4096M"),
            "get_uuid": daemon.call(f"{limit} {site.gpu}"),
            "get_0": daemon.call(f"{limit} 0"),
            "parser": {
                value: daemon.call(f"set_default_device_pinned_mem_limit 0 {value}", f"{limit} 0")
                for value in ("6145M", "6100M", "512K", "1.5G", "0M", "abc")
            },
        }


LIMIT_STEPS = (
    Step(
        name="memory",
        budget_s=30,
        asks="9.9.4: an allocation above the limit, and what free and total say",
        run=memory,
        needs=_MPS,
    ),
    Step(
        name="escapes",
        budget_s=60,
        asks="9.9.5: which client environments drop a server's limit, or a client's own",
        run=escapes,
        needs=_MPS,
    ),
    Step(
        name="percentages",
        budget_s=60,
        asks="9.9.9: SMs for each percentage",
        run=percentages,
        needs=_MPS,
    ),
    Step(
        name="nvml_processes",
        budget_s=30,
        asks="9.9.10: what NVML lists of server and clients, and how much memory",
        run=nvml_processes,
        needs=frozenset({"mps", "nvml"}),
    ),
    Step(
        name="uuid_operand",
        budget_s=20,
        asks="9.9.12: is a UUID taken as device, and how amounts are parsed",
        run=uuid_operand,
        needs=_MPS,
    ),
)
