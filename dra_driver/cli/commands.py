"""Commands, and what becomes of their errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from dra_driver import log
from dra_driver.cli import checkpoint_commands
from dra_driver.cli.options import with_settings
from dra_driver.cli.people import for_people, print_json
from dra_driver.errors import ClaimError, GpusliceError, SettingsError
from dra_driver.settings import Settings, load

EXIT_FATAL = 1
EXIT_SETTINGS = 2
EXIT_INTERRUPTED = 130

_PRECEDENCE = (
    "A flag wins over its environment variable, that over the YAML file of --config, and that over "
    "the default. A key of the file is a flag's name without its leading dashes."
)
_EXIT_STATUS = (
    "Exit status: 0 after success or a signal to stop, 1 where the work cannot be done, 2 for bad "
    "settings."
)
_EPILOG = f"{_PRECEDENCE}\n\n{_EXIT_STATUS}"
_HARDWARE = ("config", "node_name", "simulate", "driver_root", "host_root", "allow_burst")
_CLAIMS = ("driver_name", "mps_single_uid")
_SHARES = ("run_dir", "mpsd_socket", "sharing", "mps_expose_folder")
"""Without the supervisor's socket and mode, what sharing promises would be guessed."""

_DOCTOR = (
    "config",
    "node_name",
    "pod_uid",
    "driver_name",
    "kubeconfig",
    "kubelet_registrar_directory_path",
    "kubelet_plugins_directory_path",
    "cdi_root",
    "state_dir",
    "run_dir",
    "host_root",
    "driver_root",
    "pod_resources_socket",
    "mpsd_socket",
    "mps_control_path",
    "nvidia_smi_path",
    "cuda_checkpoint_path",
    "checkpoint_hook",
    "hook_path",
    "hook_socket",
    "checkpoint_socket",
    "sharing",
    "simulate",
)
_MPSD = (
    "config",
    "node_name",
    "simulate",
    "host_root",
    "driver_root",
    "run_dir",
    "mpsd_socket",
    "mps_control_path",
    "sharing",
    "mps_single_uid",
    "mps_expose_folder",
    "http_endpoint",
    "shutdown_grace_seconds",
    "log_level",
    "log_format",
)

_Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

app = typer.Typer(
    help="GPU slices for Kubernetes by Dynamic Resource Allocation: compute percent and memory.",
    epilog=_EXIT_STATUS,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, by default this process's, and give the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    command = typer.main.get_command(app)
    try:
        status = command.main(given, prog_name="gpuslice", standalone_mode=False)
    except typer.Abort:
        return EXIT_INTERRUPTED
    except typer.TyperException as error:
        return _complain(_usage(error, given), EXIT_SETTINGS)
    except SettingsError as error:
        return _complain(str(error), EXIT_SETTINGS)
    except GpusliceError as error:
        return _complain(str(error), EXIT_FATAL)
    except OSError as error:
        return _complain(_output(error), EXIT_FATAL)
    return status if isinstance(status, int) else 0


@app.command(epilog=_EPILOG)
@with_settings(Settings.model_fields)
def plugin(flags: Mapping[str, str]) -> int:
    """Run the kubelet plugin of this node.

    It registers with the kubelet, publishes ResourceSlices, and prepares and unprepares claims,
    until a signal ends it. Metrics are sent by OTLP, too, where OTEL_EXPORTER_OTLP_ENDPOINT names a
    collector.
    """
    from dra_driver.app.checks import PLUGIN_CHECKS  # noqa: PLC0415
    from dra_driver.app.plugin import run  # noqa: PLC0415

    settings = load(flags, required=("node_name",), checks=PLUGIN_CHECKS)
    log.configure(settings.log_level, settings.log_format)
    return run(settings)


@app.command(epilog=_EPILOG)
@with_settings(_MPSD)
def mpsd(flags: Mapping[str, str]) -> int:
    """Run the supervisor of this node's MPS.

    It enforces the shares of GPUs that the plugin asks for on --mpsd-socket, until a signal ends
    it. MPS daemons that have shares go on then, and the next mpsd finds them.
    """
    from dra_driver.app.checks import MPSD_CHECKS  # noqa: PLC0415
    from dra_driver.app.mpsd import run  # noqa: PLC0415

    settings = load(flags, checks=MPSD_CHECKS)
    log.configure(settings.log_level, settings.log_format)
    return run(settings)


@app.command(epilog=_EPILOG)
@with_settings(_HARDWARE)
def inventory(flags: Mapping[str, str], *, as_json: _Json = False) -> int:
    """List this node's GPUs.

    Tells what of them can be used, and which are left out and why.
    """
    settings = for_people(flags)
    from dra_driver.app.inventory import inventory_report  # noqa: PLC0415

    report = inventory_report(settings)
    if as_json:
        print_json(report.to_json())
        return 0
    from dra_driver.cli.tables import print_inventory  # noqa: PLC0415

    print_inventory(report)
    return 0


@app.command(epilog=_EPILOG)
@with_settings((*_HARDWARE, *_CLAIMS, *_SHARES))
def explain(
    flags: Mapping[str, str],
    *,
    claim: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="A ResourceClaim with an allocation, as YAML or JSON, such as 'kubectl get "
            "resourceclaim NAME -o yaml' prints it; - reads standard input.",
        ),
    ],
    as_json: _Json = False,
) -> int:
    """Say what preparing a claim would do, and why.

    Nothing is changed. A claim that would be refused is an exit status of 1, with the reason.
    """
    settings = for_people(flags)
    from dra_driver.app.explain import explain_claim  # noqa: PLC0415

    try:
        explanation = explain_claim(settings, claim)
    except ClaimError as refusal:
        if not as_json:
            raise
        print_json(
            {
                "refusal": str(refusal),
                "reason": refusal.reason,
                "retryable": refusal.retryable,
            }
        )
        return EXIT_FATAL
    if as_json:
        print_json(explanation.to_json())
    else:
        from dra_driver.cli.tables import print_explanation  # noqa: PLC0415

        print_explanation(explanation)
    return 0


@app.command(epilog=_EPILOG)
@with_settings(_DOCTOR)
def doctor(flags: Mapping[str, str], *, as_json: _Json = False) -> int:
    """Check this node.

    It says how to mend what is wrong. Nothing is changed. A problem is an exit status of 1;
    warnings are not.
    """
    settings = for_people(flags)
    from dra_driver.app.doctor import doctor_report  # noqa: PLC0415

    report = doctor_report(settings)
    if as_json:
        print_json(report.to_json())
    else:
        from dra_driver.cli.doctor_view import print_report  # noqa: PLC0415

        print_report(report)
    return 0 if report.sound else EXIT_FATAL


app.command(epilog=_EPILOG)(checkpoint_commands.checkpoint)
app.command(epilog=_EPILOG)(checkpoint_commands.restore)
app.command(epilog=_EPILOG)(checkpoint_commands.operations)
app.command(epilog=_EPILOG)(checkpoint_commands.hook)
app.command(epilog=_EPILOG, hidden=True)(checkpoint_commands.archive)


@app.command()
def version(*, as_json: _Json = False) -> int:
    """Print versions, for bug reports."""
    from dra_driver.app.version import versions  # noqa: PLC0415

    found = versions()
    if as_json:
        print_json(found)
    else:
        for name, text in found.items():
            typer.echo(f"{name} {text}")
    return 0


def _complain(text: str, status: int) -> int:
    for line in text.splitlines():
        typer.echo(f"gpuslice: {line}", err=True)
    return status


def _usage(error: typer.TyperException, given: Sequence[str]) -> str:
    """One sentence, with the way to the help of the command that it is about."""
    known = {each.callback.__name__ for each in app.registered_commands if each.callback}
    about = f"gpuslice {given[0]}" if given[0] in known else "gpuslice"
    text = " ".join(error.format_message().split())
    text = text.replace(". Did you mean", ", did you mean").rstrip(".?")
    return f"{text[:1].lower()}{text[1:]}; see {about} --help"


def _output(error: OSError) -> str:
    """Standard output is gone or full: keep the interpreter from failing on it once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return "" if isinstance(error, BrokenPipeError) else f"cannot write the output: {error}"
