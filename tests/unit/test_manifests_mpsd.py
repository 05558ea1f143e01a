"""What the manifest of `gpuslice mpsd` says is what the program understands."""

from __future__ import annotations

from typing import Any, cast

import pytest
import typer

from dra_driver.app import mpsd
from dra_driver.cli.commands import app
from dra_driver.settings import Settings, load
from dra_driver.telemetry import http
from tests import manifests
from tests.manifests import BASE, SIMULATED, SIMULATED_MPS, Document

PLUGIN_POD = manifests.pod_spec(manifests.daemon_set())
(PLUGIN,) = PLUGIN_POD["containers"]
DAEMON_SET = manifests.daemon_set("mpsd")
POD = manifests.pod_spec(DAEMON_SET)
(MPSD,) = POD["containers"]


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What the program makes of the container's arguments, with the settings file of base."""
    monkeypatch.setenv("NODE_NAME", "node-a")
    command = cast("Any", typer.main.get_command(app)).commands[MPSD["args"][0]]
    context = command.make_context("mpsd", MPSD["args"][1:])
    given = {name: text for name, text in context.params.items() if text is not None}
    assert given["config"] == "/etc/gpuslice/settings.yaml"
    return load(given | {"config": str(BASE / "settings.yaml")})


def test_mpsd_is_started_by_the_init_that_stays() -> None:
    assert MPSD["command"] == ["gpuslice-init", "gpuslice"]
    assert MPSD["args"][0] == "mpsd"


def test_mpsd_sees_what_the_plugin_sees(settings: Settings) -> None:
    shared = {
        each for each in PLUGIN["args"] if each.startswith(("--config", "--host", "--driver-r"))
    }
    assert shared <= set(MPSD["args"])
    assert POD["affinity"] == PLUGIN_POD["affinity"]
    assert POD["tolerations"] == PLUGIN_POD["tolerations"]
    plugin, own = _mounts(PLUGIN, PLUGIN_POD), _mounts(MPSD, POD)
    assert own == {path: plugin[path] for path in own}
    # What the plugin tells containers to mount has to be where mpsd makes it.
    assert {str(settings.run_dir), str(settings.host_root), "/dev", "/etc/gpuslice"} == set(own)
    assert {each["name"] for each in MPSD["env"]} == {"NODE_NAME", "NVIDIA_VISIBLE_DEVICES"}


def test_plugin_and_mpsd_name_the_same_socket(settings: Settings) -> None:
    assert not settings.mpsd_socket
    assert not [each for each in (*PLUGIN["args"], *MPSD["args"]) if "mpsd-socket" in each]
    assert not [each for each in PLUGIN["args"] if "run-dir" in each]


def _mounts(container: Document, pod: Document) -> dict[str, tuple[Document, Document]]:
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounts = container["volumeMounts"]
    return {each["mountPath"]: (each, volumes[each["name"]]) for each in mounts}


def test_nothing_ends_the_container_but_whoever_deletes_the_pod() -> None:
    assert DAEMON_SET["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert "livenessProbe" not in MPSD
    assert "startupProbe" not in MPSD


def test_mpsd_has_no_rights_at_the_api_server() -> None:
    assert POD["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in POD


def test_mpsd_works_on_the_hosts_processes() -> None:
    assert POD["hostPID"] is True
    assert MPSD["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}


def test_readiness_waits_for_its_answer(settings: Settings) -> None:
    assert settings.http_endpoint is not None
    (port,) = MPSD["ports"]
    assert port == {"name": "http", "containerPort": settings.http_endpoint.port}
    probe = MPSD["readinessProbe"]
    assert probe["httpGet"] == {"path": "/readyz", "port": "http"}
    assert probe["timeoutSeconds"] > http._CHECK_TIMEOUT_S


def test_mpsd_gets_the_time_that_it_takes_to_stop(settings: Settings) -> None:
    longest_s = settings.shutdown_grace_seconds + mpsd._LOOPS_STOP_S
    assert POD["terminationGracePeriodSeconds"] >= longest_s + 5


def test_simulated_overlay_has_no_mpsd_as_its_plugin_simulates_it() -> None:
    (kustomization,) = manifests.read(SIMULATED / "kustomization.yaml")
    assert {"path": "mpsd.yaml"} in kustomization["patches"]
    (patch,) = manifests.read(SIMULATED / "mpsd.yaml")
    assert patch["$patch"] == "delete"
    named = {key: DAEMON_SET["metadata"][key] for key in ("name", "namespace")}
    assert (patch["kind"], patch["metadata"]) == ("DaemonSet", named)
    (settings,) = manifests.read(SIMULATED / "settings.yaml")
    assert not {"mpsd-socket", "mps-control-path"} & set(settings)
    assert not [each for each in PLUGIN["args"] if each.startswith(("--mpsd", "--mps"))]


@pytest.mark.parametrize("command", ["plugin", "mpsd"])
def test_settings_of_simulated_gpus_with_real_daemons_are_understood(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "node-a")
    (container,) = manifests.pod_spec(manifests.daemon_set(command))["containers"]
    parser = cast("Any", typer.main.get_command(app)).commands[command]
    context = parser.make_context(command, container["args"][1:])
    given = {name: text for name, text in context.params.items() if text is not None}
    settings = load(given | {"config": str(SIMULATED_MPS / "settings.yaml")})
    assert settings.simulate
    # Only then the plugin has mpsd hold its shares.
    assert settings.mpsd_socket == str(settings.run_dir / "mpsd.sock")
    assert settings.mps_control_path is not None
    assert settings.mps_control_path.startswith(f"{settings.host_root}/")


def test_quota_has_room_for_both_on_every_node() -> None:
    (quota,) = manifests.of_kind("ResourceQuota", manifests.base())
    assert quota["spec"]["hard"]["pods"] == "15k"
