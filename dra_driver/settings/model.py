"""The settings themselves."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from dra_driver.log import LogFormat, LogLevel
from dra_driver.settings import values
from dra_driver.settings.values import Endpoint

ENV_PREFIX = "GPUSLICE_"


class PublishMode(StrEnum):
    """What ResourceSlices say of GPUs; AUTO asks the API server what it keeps."""

    AUTO = "auto"
    CONSUMABLE = "consumable"
    STATIC = "static"


class SharingMode(StrEnum):
    """How shares of a GPU run side by side."""

    MPS = "mps"
    TIME_SLICING = "time-slicing"


T = TypeVar("T")

_Text = Annotated[str, BeforeValidator(values.text)]
_Directory = Annotated[Path, BeforeValidator(values.directory)]
_File = Annotated[Path | None, BeforeValidator(values.optional_file)]
_Seconds = Annotated[float, BeforeValidator(values.seconds)]


def _setting(metavar: str, default: Any, description: str) -> Any:
    return Field(default=default, description=description, json_schema_extra={"metavar": metavar})


class Settings(BaseSettings):
    """Fields in the order of the help text; a unit stands in the name or in the description."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="forbid", frozen=True, validate_default=False
    )

    config: _File = _setting(
        "FILE", None, "YAML file of settings; a key is a flag's name without the leading dashes."
    )

    node_name: Annotated[str, BeforeValidator(values.node_name)] = _setting(
        "NAME", "", "Name of this node's Node object, and of the pool of devices. Required."
    )
    pod_uid: Annotated[str, BeforeValidator(values.pod_uid)] = _setting(
        "UID",
        "",
        "UID of this pod; puts it into socket names, so that two pods of a rolling update can "
        "serve side by side.",
    )
    driver_name: Annotated[str, BeforeValidator(values.driver_name)] = _setting(
        "NAME", "gpuslice.io", "Name of the DRA driver; also the prefix of CDI specs and sockets."
    )
    kubeconfig: _File = _setting(
        "FILE", None, "How to reach the API server. Default: the pod's service account."
    )

    kubelet_registrar_directory_path: _Directory = _setting(
        "DIR",
        Path("/var/lib/kubelet/plugins_registry"),
        "Where the kubelet looks for registration sockets.",
    )
    kubelet_plugins_directory_path: _Directory = _setting(
        "DIR",
        Path("/var/lib/kubelet/plugins"),
        "Where the DRA socket goes, in a folder of its own.",
    )
    cdi_root: _Directory = _setting(
        "DIR", Path("/var/run/cdi"), "Where CDI specs go; the container runtime has to read them."
    )
    state_dir: _Directory = _setting(
        "DIR",
        Path("/var/lib/gpuslice"),
        "Where the journal of claims and its locks go; has to survive reboots.",
    )
    run_dir: _Directory = _setting(
        "DIR",
        Path("/run/gpuslice"),
        "Where claims under way and the state of sharing go; may be lost at a reboot.",
    )
    host_root: _Directory = _setting(
        "DIR", Path("/"), "Where the host's /dev, /sys and /proc are seen."
    )
    driver_root: _Directory = _setting(
        "DIR", Path("/"), "Root of the GPU driver's files on the host."
    )

    pod_resources_socket: _Directory = _setting(
        "SOCKET",
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        "Where the kubelet tells which containers use which claims.",
    )
    mpsd_socket: _Text = _setting(
        "SOCKET",
        "",
        "Socket of gpuslice mpsd. Default: mpsd.sock in --run-dir; with --simulate, unless this or "
        "--mps-control-path is given, sharing is simulated inside the plugin.",
    )
    mps_control_path: _Text = _setting(
        "FILE", "", "Program nvidia-cuda-mps-control. Default: looked for below --driver-root."
    )
    nvidia_smi_path: _Text = _setting(
        "FILE", "", "Program nvidia-smi. Default: looked for below --driver-root."
    )
    cuda_checkpoint_path: _Text = _setting(
        "FILE",
        "",
        "Program cuda-checkpoint, as CRIU finds it. Default: looked for in the program folders of "
        "--host-root.",
    )

    simulate: _Text = _setting(
        "FILE",
        "",
        "YAML file with simulated GPUs, or the name of a ready node, such as 8xh100-80gb; used "
        "instead of NVML and followed while the driver runs.",
    )
    additional_ignored_xids: Annotated[tuple[int, ...], NoDecode, BeforeValidator(values.xids)] = (
        _setting("XIDS", (), "GPU errors that do not make a GPU unhealthy, such as 13,31.")
    )

    publish_mode: Annotated[PublishMode, BeforeValidator(values.choice(PublishMode))] = _setting(
        "MODE",
        PublishMode.AUTO,
        "auto: what the API server keeps; consumable: any percentage and amount of memory; static: "
        "fixed slots.",
    )
    static_layout: _Text = _setting(
        "LAYOUT",
        "whole",
        "Slots of a GPU in static mode: whole, or COUNTxPERCENT such as 4x25; GPU=LAYOUT for one "
        "GPU by index or UUID; commas between.",
    )
    allow_burst: Annotated[bool, BeforeValidator(values.flag)] = _setting(
        "BOOL", True, "Whether a share may use more compute than it asked for while others idle."
    )
    sharing: Annotated[SharingMode, BeforeValidator(values.choice(SharingMode))] = _setting(
        "MODE",
        SharingMode.MPS,
        "How shares of a GPU run side by side. mps: limits are enforced; a GPU that MPS cannot run "
        "on is offered whole. time-slicing: shares take turns and nothing enforces their amounts.",
    )
    mps_expose_folder: Annotated[bool, BeforeValidator(values.flag)] = _setting(
        "BOOL",
        False,
        "Whether containers see all sockets of their GPU's MPS daemon instead of the one that "
        "clients need; root in a container can then change limits (tier cooperative).",
    )
    mps_single_uid: Annotated[int | None, BeforeValidator(values.optional_uid)] = _setting(
        "UID",
        None,
        "The one user id whose pods may share GPUs under drivers below 555, whose MPS serves one "
        "user at a time.",
    )

    watchdog_interval_seconds: _Seconds = _setting(
        "SECONDS", 5.0, "Pause between looks at the memory of shares."
    )

    checkpoint_hook: Annotated[bool, BeforeValidator(values.flag)] = _setting(
        "BOOL",
        False,
        "Whether CRIU on this node calls the driver before and after checkpoints and restores: the "
        "plugin installs the program and its line in CRIU's configuration, and with false takes "
        "out again what was installed with the same --state-dir.",
    )
    hook_path: Annotated[Path, BeforeValidator(values.program_path)] = _setting(
        "FILE",
        Path("/opt/gpuslice/bin/gpuslice-hook"),
        "Where the program of --checkpoint-hook goes, on the host.",
    )
    hook_socket: _Text = _setting(
        "SOCKET",
        "",
        "Socket on which that program asks, as the host sees it. Default: hook.sock in --run-dir.",
    )
    checkpoint_socket: _Text = _setting(
        "SOCKET",
        "",
        "Socket of the checkpoint service, for controllers. Default: checkpoint.sock in --run-dir.",
    )
    checkpoints_dir: _Directory = _setting(
        "DIR",
        Path("/var/lib/kubelet/checkpoints"),
        "Where the kubelet keeps the archives of checkpoints; only read.",
    )

    http_endpoint: Annotated[Endpoint | None, BeforeValidator(values.endpoint)] = _setting(
        "HOST:PORT", None, "Serves /healthz, /readyz and /metrics. Default: off."
    )
    shutdown_grace_seconds: _Seconds = _setting(
        "SECONDS", 10.0, "How long calls in flight may finish after a signal."
    )
    janitor_interval_seconds: _Seconds = _setting(
        "SECONDS", 600.0, "Pause between searches for records of claims that are gone."
    )
    log_level: Annotated[LogLevel, BeforeValidator(values.choice(LogLevel))] = _setting(
        "LEVEL", LogLevel.INFO, "debug, info, warning or error."
    )
    log_format: Annotated[LogFormat, BeforeValidator(values.choice(LogFormat))] = _setting(
        "FORMAT", LogFormat.JSON, "json: one object a line; console: for people."
    )
