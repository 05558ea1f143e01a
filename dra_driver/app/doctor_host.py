"""Programs, cgroups and the container runtime of a host."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dra_driver.app.doctor_ports import driver_programs
from dra_driver.errors import AdapterError
from dra_driver.model.doctor import Finding, ok, problem, warning
from dra_driver.settings import Settings, SharingMode

_SERVER = "nvidia-cuda-mps-server"
_CONTAINERD_WITH_CDI = 3
"""Version of containerd's configuration, from containerd 2.0 on; CDI is on by default there."""

_CDI_DEFAULTS = ("/etc/cdi", "/var/run/cdi")


def rights() -> Finding:
    if os.geteuid() == 0:
        return ok("rights", "root")
    return warning(
        "rights",
        f"user id {os.geteuid()}: folders and sockets of root, and processes of others, are not "
        "seen as the plugin sees them",
        "run the doctor as root",
    )


def nvidia_smi(settings: Settings) -> Finding:
    subject = "nvidia-smi"
    if settings.simulate:
        return ok(subject, "not needed: GPUs are simulated")
    try:
        return ok(subject, str(driver_programs(settings).nvidia_smi()))
    except AdapterError as error:
        return warning(subject, f"time slices of whole GPUs cannot be set: {error}")


def mps_program(settings: Settings) -> Finding:
    subject = "MPS program"
    if settings.sharing is SharingMode.TIME_SLICING:
        return ok(subject, "not needed: shares take turns (--sharing)")
    if settings.simulate and not settings.mps_control_path:
        return ok(subject, "not needed: GPUs are simulated")
    try:
        found = driver_programs(settings).control()
    except AdapterError as error:
        return problem(subject, f"GPUs are offered whole: {error}")
    places = (found.parent, found.parent.parent / "sbin", found.parent.parent / "bin")
    if settings.simulate or any((place / _SERVER).exists() for place in places):
        return ok(subject, str(found))
    return problem(subject, f"{found} has no {_SERVER} beside it", "install the whole package")


def default_pipe(settings: Settings) -> Finding:
    """Whether a daemon serves MPS's default folder: clients of it would not be ours."""
    subject = "/tmp/nvidia-mps"  # noqa: S108 - MPS's own default
    sockets = settings.host_root / "proc/net/unix"
    if not (settings.host_root / subject[1:]).exists():
        return ok(subject, "not there")
    try:
        lines = sockets.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return warning(subject, f"there; {sockets} does not tell whether it is in use: {error}")
    if any(f"{subject}/control" in line for line in lines):
        text = "an MPS daemon of others serves it; processes outside shares join it"
        return warning(subject, text, "end it: echo quit | nvidia-cuda-mps-control")
    return ok(subject, "left over from a daemon that ended; harmless")


def cgroups(settings: Settings) -> Iterator[Finding]:
    subject, root = "cgroups", settings.host_root / "sys/fs/cgroup"
    if not (root / "cgroup.controllers").exists():
        text = f"{root} is not cgroup v2"
        yield warning(subject, text, "boot with systemd.unified_cgroup_hierarchy=1")
        return
    drivers = {"kubepods.slice": "systemd", "kubepods": "cgroupfs"}
    # A kubelet in a container, such as kind's, has its pods some levels down.
    found = [
        driver
        for pattern in ("", "*/", "*/*/")
        for name, driver in drivers.items()
        if any(root.glob(f"{pattern}{name}"))
    ]
    if found:
        yield ok(subject, f"v2, cgroup driver {found[0]}")
    else:
        yield warning(subject, f"v2; no pods' cgroup below {root}", "start the kubelet")


def container_runtime(settings: Settings) -> Iterator[Finding]:
    """Whether the runtime will read CDI specs, as far as its configuration tells."""
    subject, host = "container runtime", settings.host_root
    if (host / "run/crio/crio.sock").exists():
        yield ok(subject, "CRI-O, which reads CDI specs")
        return
    config = host / "etc/containerd/config.toml"
    if not config.exists():
        if (host / "run/containerd/containerd.sock").exists():
            text = "containerd with its default configuration, which reads CDI specs from 2.0 on"
            yield warning(subject, text, "check that containerd --version says 2.0 or later")
        else:
            text = f"neither containerd nor CRI-O was found below {host}"
            yield warning(subject, text, "have the runtime read CDI specs (containerd: enable_cdi)")
        return
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        yield warning(subject, f"{config} cannot be read: {error}", "run the doctor as root")
        return
    yield from _containerd(config, content, settings)


def _containerd(config: Path, content: Mapping[str, Any], settings: Settings) -> Iterator[Finding]:
    subject = "container runtime"
    enabled = list(_values(content, "enable_cdi"))
    recent = int(content.get("version", 1)) >= _CONTAINERD_WITH_CDI
    if not (enabled[-1] if enabled else recent):
        mend = 'set enable_cdi = true under [plugins."io.containerd.grpc.v1.cri"] and restart it'
        yield problem(subject, f"{config} does not switch CDI on: devices reach no pod", mend)
        return
    folders = [folder for listed in _values(content, "cdi_spec_dirs") for folder in listed]
    seen = {os.path.realpath(each) for each in folders or _CDI_DEFAULTS}
    if os.path.realpath(settings.cdi_root) not in seen:
        text = f"{config} does not read CDI specs from {settings.cdi_root}"
        yield problem(subject, text, "add it to cdi_spec_dirs, or give --cdi-root what it reads")
        return
    yield ok(subject, f"{config} has CDI switched on")


def _values(content: Any, key: str) -> Iterator[Any]:
    """All values of a key, at any depth."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            if name == key:
                yield value
            yield from _values(value, key)
