"""What can be wrong with settings beyond their form, so that a start lists all of it at once."""

from __future__ import annotations

import os

from dra_driver.adapters.kube import check_configuration
from dra_driver.app.options import publish_options
from dra_driver.kubelet.paths import SocketPaths, socket_paths
from dra_driver.settings import Check, Settings
from dra_driver.telemetry.otlp_variables import check_otlp


def plugin_paths(settings: Settings) -> SocketPaths:
    """Where a plugin's sockets are; raises SettingsError where they cannot be."""
    return socket_paths(
        driver=settings.driver_name,
        pod_uid=settings.pod_uid,
        registrar_directory=settings.kubelet_registrar_directory_path,
        plugins_directory=settings.kubelet_plugins_directory_path,
    )


def _simulation(settings: Settings) -> None:
    if not settings.simulate:
        return
    from dra_driver.adapters.profiles import resolve_simulate  # noqa: PLC0415 - where it is on
    from dra_driver.adapters.simulated_file import SimulationFile  # noqa: PLC0415

    path = resolve_simulate(settings.simulate)
    SimulationFile(path, node_name=settings.node_name).close()


def _mpsd_socket(settings: Settings) -> None:
    from dra_driver.app.mps_parts import mpsd_socket  # noqa: PLC0415 - the plugin has no use for it
    from dra_driver.mps.server import check_path  # noqa: PLC0415

    check_path(mpsd_socket(settings))


_OTLP = Check(settings=(), run=lambda _: check_otlp(os.environ))
_SIMULATION = Check(settings=("simulate",), run=_simulation)

PLUGIN_CHECKS = (
    Check(
        settings=(
            "driver_name",
            "pod_uid",
            "kubelet_registrar_directory_path",
            "kubelet_plugins_directory_path",
        ),
        run=plugin_paths,
    ),
    Check(settings=("static_layout",), run=publish_options),
    Check(settings=("kubeconfig",), run=lambda settings: check_configuration(settings.kubeconfig)),
    _SIMULATION,
    _OTLP,
)
MPSD_CHECKS = (
    Check(settings=("run_dir", "mpsd_socket"), run=_mpsd_socket),
    _SIMULATION,
    _OTLP,
)
