"""What the manifests say is what the program understands; the API servers have tests of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import HTTPErrorProcessor, ProxyHandler, build_opener

import pytest
import typer

from dra_driver import __version__
from dra_driver.adapters.profiles import resolve_simulate
from dra_driver.app import plugin, probes
from dra_driver.cli.commands import app
from dra_driver.kubelet.registration import Registration
from dra_driver.loops.guard import LoopGuard
from dra_driver.settings import DOWNWARD_API, Endpoint, Settings, load
from dra_driver.state.current import Current
from dra_driver.telemetry import http
from dra_driver.telemetry.off import NoMetrics
from tests import manifests
from tests.manifests import BASE, FOLDER, SIMULATED, Document, of_kind

FILES = tuple(sorted(FOLDER.rglob("*.yaml")))
DAEMON_SET = manifests.daemon_set()
POD = manifests.pod_spec(DAEMON_SET)
(PLUGIN,) = POD["containers"]
(PATCH,) = manifests.read(SIMULATED / "daemonset.yaml")
(SIMULATED_PLUGIN,) = manifests.pod_spec(PATCH)["containers"]


def _settings(arguments: list[str], config: Path, environment: pytest.MonkeyPatch) -> Settings:
    """What the program makes of a container's arguments, with a settings file of the repository."""
    values = {"NODE_NAME": "node-a", "POD_UID": "11111111-0000-4000-8000-000000000001"}
    for variable in PLUGIN["env"]:
        environment.setenv(variable["name"], values.get(variable["name"], variable.get("value")))
    command = cast("Any", typer.main.get_command(app)).commands[arguments[0]]
    context = command.make_context(arguments[0], arguments[1:])
    given = {name: text for name, text in context.params.items() if text is not None}
    assert given["config"] == "/etc/gpuslice/settings.yaml"
    return load(given | {"config": str(config)}, required=("node_name", "pod_uid"))


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    return _settings(PLUGIN["args"], BASE / "settings.yaml", monkeypatch)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_file_has_no_key_twice_and_nothing_empty(path: Path) -> None:
    for document in manifests.read(path):
        empty = [where for where in _empty(document, "") if where != ".spec.template.spec.affinity"]
        assert not empty, empty
        name = document.get("metadata", {}).get("name", "kustomization")
        assert len(name) <= 63
        assert re.fullmatch(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", name)


def _empty(value: object, where: str) -> Iterator[str]:
    match value:
        case None:
            yield where
        case dict() | list() if not value:
            yield where
        case dict():
            for key, part in value.items():
                yield from _empty(part, f"{where}.{key}")
        case list():
            for number, part in enumerate(value):
                yield from _empty(part, f"{where}[{number}]")
        case _:
            pass


def test_plugin_understands_its_arguments_and_variables(settings: Settings) -> None:
    assert settings.node_name == "node-a"
    assert settings.pod_uid.startswith("11111111-")
    known = {*DOWNWARD_API.values(), "NVIDIA_VISIBLE_DEVICES"}
    assert {each["name"] for each in PLUGIN["env"]} == known
    paths = {each["name"]: each.get("valueFrom") for each in PLUGIN["env"]}
    assert paths["NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert paths["POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}


def test_simulated_plugin_understands_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = _settings(SIMULATED_PLUGIN["args"], SIMULATED / "settings.yaml", monkeypatch)
    assert resolve_simulate(settings.simulate).exists()
    assert (settings.host_root, settings.driver_root) == (Path("/"), Path("/"))


def test_simulated_overlay_leaves_out_what_only_real_gpus_need() -> None:
    left_out = {"--host-root=/host", "--driver-root=/host"}
    assert SIMULATED_PLUGIN["args"] == [each for each in PLUGIN["args"] if each not in left_out]
    deleted = {each["mountPath"] for each in SIMULATED_PLUGIN["volumeMounts"]}
    assert deleted == {"/dev", "/host"}
    assert {each["name"] for each in manifests.pod_spec(PATCH)["volumes"]} == {"dev", "host"}


def test_flags_do_not_fix_what_the_settings_file_is_for() -> None:
    flags = {each.partition("=")[0] for each in PLUGIN["args"][1:]}
    assert flags == {
        "--config",
        # As in the mounts and the probes.
        "--kubelet-registrar-directory-path",
        "--kubelet-plugins-directory-path",
        "--host-root",
        "--driver-root",
        "--http-endpoint",
        # As in the device classes and the policies.
        "--driver-name",
    }


def test_plugin_writes_to_folders_of_the_host_at_the_same_paths(settings: Settings) -> None:
    mounts = _mounts()
    for folder, kind in (
        (settings.kubelet_registrar_directory_path, "Directory"),
        (settings.kubelet_plugins_directory_path, "Directory"),
        (settings.cdi_root, "DirectoryOrCreate"),
        (settings.state_dir, "DirectoryOrCreate"),
        (settings.run_dir, "DirectoryOrCreate"),
    ):
        mount, volume = mounts[str(folder)]
        assert volume["hostPath"] == {"path": str(folder), "type": kind}
        assert not mount.get("readOnly")


def test_plugin_sees_the_host_as_it_is_now_and_cannot_change_it(settings: Settings) -> None:
    mount, volume = _mounts()[str(settings.host_root)]
    assert volume["hostPath"]["path"] == "/"
    assert mount["readOnly"]
    assert mount["mountPropagation"] == "HostToContainer"
    assert settings.driver_root.is_relative_to(settings.host_root)


def test_every_volume_is_mounted_once() -> None:
    names = [each["name"] for each in PLUGIN["volumeMounts"]]
    assert sorted(names) == sorted(each["name"] for each in POD["volumes"])


def _mounts() -> dict[str, tuple[Document, Document]]:
    volumes = {each["name"]: each for each in POD["volumes"]}
    return {each["mountPath"]: (each, volumes[each["name"]]) for each in PLUGIN["volumeMounts"]}


def test_probes_ask_for_pages_that_exist_and_wait_for_their_answer(settings: Settings) -> None:
    assert settings.http_endpoint is not None
    (port,) = PLUGIN["ports"]
    assert port == {"name": "http", "containerPort": settings.http_endpoint.port}
    pages = _pages()
    for name, path in (("startup", "/healthz"), ("liveness", "/healthz"), ("readiness", "/readyz")):
        probe = PLUGIN[f"{name}Probe"]
        assert probe["httpGet"] == {"path": path, "port": "http"}
        assert path in pages
        assert probe["timeoutSeconds"] > http._CHECK_TIMEOUT_S
    startup = PLUGIN["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] > 2 * plugin._RECOVERY_S


def _pages() -> set[str]:
    """The pages of the real server: it lists them to who asks for another."""
    guard = LoopGuard(lambda _: None)
    server = probes.serve_http(
        Endpoint("127.0.0.1", 0),
        node=cast("Any", SimpleNamespace(sharing=None)),
        registration=Current(Registration()),
        loops=guard,
        paths=cast("Any", None),
        recorder=NoMetrics(),
    )
    opener = build_opener(ProxyHandler({}), _Answers())
    with server, opener.open(f"http://{server.address}/nowhere", timeout=5) as answer:
        return set(re.findall(r"/\w+", answer.read().decode()))


class _Answers(HTTPErrorProcessor):
    """Gives answers that are no success, too."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response


def test_plugin_gets_the_time_that_it_takes_to_stop(settings: Settings) -> None:
    longest_s = settings.shutdown_grace_seconds + plugin._LOOPS_STOP_S
    assert POD["terminationGracePeriodSeconds"] >= longest_s + 5


def test_two_pods_of_a_rolling_update_fit_on_one_node() -> None:
    update = DAEMON_SET["spec"]["updateStrategy"]
    assert update["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert "hostNetwork" not in POD
    assert all("hostPort" not in each for each in PLUGIN["ports"])


def test_version_is_that_of_the_program() -> None:
    (kustomization,) = manifests.read(BASE / "kustomization.yaml")
    assert [each["newTag"] for each in kustomization["images"]] == [__version__]
    (labels,) = kustomization["labels"]
    assert labels["pairs"]["app.kubernetes.io/version"] == __version__


def test_driver_has_one_name_everywhere(settings: Settings) -> None:
    name = settings.driver_name
    for each in of_kind("DeviceClass", manifests.base()):
        assert each["metadata"]["name"].endswith(f".{name}")
        (selector,) = each["spec"]["selectors"]
        named = set(re.findall(r'(?:== |\[)"([^"]*\.[^"]*)"', selector["cel"]["expression"]))
        assert named == {name}
    assert f"variables.spec.driver == '{name}'" in (BASE / "slice-policy.yaml").read_text()


def test_policy_holds_for_the_account_of_the_plugin() -> None:
    (policy,) = of_kind("ValidatingAdmissionPolicy", manifests.base())
    (condition,) = policy["spec"]["matchConditions"]
    account = POD["serviceAccountName"]
    assert f"endsWith(':{account}')" in condition["expression"]
    (binding,) = of_kind("ClusterRoleBinding", manifests.base())
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == (account, DAEMON_SET["metadata"]["namespace"])
