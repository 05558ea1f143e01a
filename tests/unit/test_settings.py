from __future__ import annotations

import os
from pathlib import Path

import pytest

from dra_driver.errors import SettingsError
from dra_driver.log import LogLevel
from dra_driver.settings import Endpoint, PublishMode, Settings, flag_of, load, variable_of


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith("GPUSLICE_") or name in {"NODE_NAME", "POD_UID"}:
            monkeypatch.delenv(name)


def _file(folder: Path, text: str) -> str:
    path = folder / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _problems(**flags: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(flags, required=("node_name",))
    return str(caught.value).splitlines()


def test_settings_have_defaults_for_all_but_the_node() -> None:
    settings = load({"node_name": "node-a"}, required=("node_name",))
    assert settings.driver_name == "gpuslice.io"
    assert settings.cdi_root == Path("/var/run/cdi")
    assert settings.publish_mode is PublishMode.AUTO
    assert settings.allow_burst is True
    assert settings.http_endpoint is None
    assert settings.mps_single_uid is None
    assert settings.additional_ignored_xids == ()


def test_settings_take_flag_then_variable_then_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = _file(tmp_path, "node-name: of-file\nstate-dir: /of/file\ncdi-root: /of/file\n")
    monkeypatch.setenv("GPUSLICE_NODE_NAME", "of-variable")
    monkeypatch.setenv("GPUSLICE_STATE_DIR", "/of/variable")
    settings = load({"config": config, "node_name": "of-flag"})
    assert settings.node_name == "of-flag"
    assert settings.state_dir == Path("/of/variable")
    assert settings.cdi_root == Path("/of/file")
    assert settings.run_dir == Path("/run/gpuslice")


def test_settings_take_names_of_the_downward_api_after_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = _file(tmp_path, "node-name: of-file\npod-uid: of-file\n")
    monkeypatch.setenv("NODE_NAME", "of-pod")
    monkeypatch.setenv("POD_UID", "of-pod")
    assert load({"config": config}).node_name == "of-pod"
    monkeypatch.setenv("GPUSLICE_NODE_NAME", "ours")
    settings = load({"config": config})
    assert (settings.node_name, settings.pod_uid) == ("ours", "of-pod")


def test_settings_read_every_kind_of_value_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSLICE_ADDITIONAL_IGNORED_XIDS", "31, 13")
    monkeypatch.setenv("GPUSLICE_ALLOW_BURST", "False")
    monkeypatch.setenv("GPUSLICE_MPS_SINGLE_UID", "0")
    monkeypatch.setenv("GPUSLICE_HTTP_ENDPOINT", "[::1]:80")
    monkeypatch.setenv("GPUSLICE_SHUTDOWN_GRACE_SECONDS", "0.5")
    monkeypatch.setenv("GPUSLICE_LOG_LEVEL", "debug")
    monkeypatch.setenv("GPUSLICE_KUBECONFIG", "")
    settings = load({})
    assert settings.additional_ignored_xids == (13, 31)
    assert settings.allow_burst is False
    assert settings.mps_single_uid == 0
    assert settings.http_endpoint == Endpoint("::1", 80)
    assert str(settings.http_endpoint) == "[::1]:80"
    assert settings.shutdown_grace_seconds == 0.5
    assert settings.log_level is LogLevel.DEBUG
    assert settings.kubeconfig is None


def test_settings_read_typed_values_from_the_file(tmp_path: Path) -> None:
    config = _file(
        tmp_path,
        "additional-ignored-xids: [31, 13]\nallow-burst: no\nmps-single-uid: 1000\n"
        "shutdown-grace-seconds: 3\npod-uid:\nstatic-layout: 4x25\n",
    )
    settings = load({"config": config})
    assert settings.additional_ignored_xids == (13, 31)
    assert settings.allow_burst is False
    assert settings.mps_single_uid == 1000
    assert settings.shutdown_grace_seconds == 3
    assert settings.pod_uid == ""
    assert settings.static_layout == "4x25"


def test_settings_find_the_file_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUSLICE_CONFIG", _file(tmp_path, "node-name: of-file\n"))
    assert load({}, required=("node_name",)).node_name == "of-file"


def test_settings_make_a_files_path_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load({"kubeconfig": "here.yaml"}).kubeconfig == tmp_path / "here.yaml"


_DIRECTORY = "give an absolute path without '..', such as /var/lib/gpuslice"
_PROGRAM = (
    "give an absolute path of letters, digits and ._+@-, in a folder of a folder, such as "
    "/opt/gpuslice/bin/gpuslice-hook"
)
_DRIVER = (
    "give a DNS subdomain of at most 27 characters (it becomes a part of socket paths), such as "
    "gpuslice.io"
)
_ENDPOINT = "give HOST:PORT, such as :8080 or 127.0.0.1:8080 ([::1]:8080 for IPv6), or nothing"
_XIDS = "give NVIDIA's error numbers (XIDs) with commas between, such as 13,31"
_UID = "give a numeric user id from 0 to 4294967294, or nothing"
_SECONDS = "give a number of seconds above 0, at most 86400"


@pytest.mark.parametrize(
    ("name", "value", "way_out"),
    [
        ("node_name", "", "give the name of this node's Node object"),
        ("node_name", "Node_A", "give the name of this node's Node object"),
        ("node_name", "n" * 254, "give the name of this node's Node object"),
        ("pod_uid", "../x", "give the UID of this pod (metadata.uid), or nothing"),
        ("driver_name", "", _DRIVER),
        ("driver_name", "GPU.example.com", _DRIVER),
        ("driver_name", "a" * 28, _DRIVER),
        ("driver_name", "gpu..io", _DRIVER),
        ("driver_name", "gpu/io", _DRIVER),
        ("state_dir", "relative", _DIRECTORY),
        ("cdi_root", "", _DIRECTORY),
        ("run_dir", "/run/../etc", _DIRECTORY),
        ("kubelet_plugins_directory_path", "a\0b", _DIRECTORY),
        ("hook_path", "gpuslice-hook", _PROGRAM),
        ("hook_path", "/gpuslice-hook", _PROGRAM),
        ("hook_path", "/opt/../gpuslice-hook", _PROGRAM),
        ("hook_path", "/opt/gpu slice/hook", _PROGRAM),
        ("hook_path", "/opt/gpuslice/", _PROGRAM),
        ("publish_mode", "Static", "give one of auto, consumable, static"),
        ("allow_burst", "maybe", "give true or false"),
        ("mps_single_uid", "root", _UID),
        ("mps_single_uid", "-1", _UID),
        ("mps_single_uid", "4294967295", _UID),
        ("http_endpoint", "8080", _ENDPOINT),
        ("http_endpoint", ":65536", _ENDPOINT),
        ("http_endpoint", "::1:80", _ENDPOINT),
        ("http_endpoint", "a b:80", _ENDPOINT),
        ("additional_ignored_xids", "13;31", _XIDS),
        ("additional_ignored_xids", "0", _XIDS),
        ("shutdown_grace_seconds", "10s", _SECONDS),
        ("shutdown_grace_seconds", "0", _SECONDS),
        ("shutdown_grace_seconds", "nan", _SECONDS),
        ("janitor_interval_seconds", "86401", _SECONDS),
        ("log_level", "trace", "give one of debug, info, warning, error"),
        ("log_format", "xml", "give one of json, console"),
    ],
)
def test_settings_refuse_a_value_with_the_way_out(name: str, value: str, way_out: str) -> None:
    flags = {"node_name": "node-a", name: value}
    assert _problems(**flags) == [f"{flag_of(name)} is {value!r}: {way_out}"]


def test_settings_name_the_variable_when_it_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSLICE_STATE_DIR", "x")
    monkeypatch.setenv("NODE_NAME", "")
    assert _problems() == [
        "NODE_NAME is '': give the name of this node's Node object",
        f"GPUSLICE_STATE_DIR is 'x': {_DIRECTORY}",
    ]


def test_settings_name_the_file_and_its_key_when_they_are_wrong(tmp_path: Path) -> None:
    config = _file(
        tmp_path, "nodename: a\nconfig: b\nstate-dir: 7\nallow-burst: [1]\nlog-level: true\n"
    )
    keys = "keys are the names of flags without their leading dashes, see gpuslice plugin --help"
    assert _problems(config=config, node_name="node-a") == [
        f"{config}: unknown key 'nodename' (did you mean node-name?); {keys}",
        f"{config}: unknown key 'config'; {keys}",
        f"{config}: state-dir is 7: {_DIRECTORY}",
        f"{config}: allow-burst is [1]: give true or false",
        f"{config}: log-level is True: give a text",
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"- node-a\n", "holds no settings: write lines such as 'node-name: node-a'"),
        (b"a: b: c", "is not YAML: mapping values are not allowed here"),
        (b"[" * 5000, "is not YAML: maximum recursion depth exceeded"),
        (b"node-name: 2026-99-99", "is not YAML: month must be in 1..12"),
        (b"\xff\xfe\xff", "cannot be read: "),
    ],
)
def test_settings_name_the_file_when_it_is_malformed(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "settings.yaml"
    path.write_bytes(content)
    assert _problems(config=str(path), node_name="node-a")[0].startswith(
        f"--config {path} {problem}"
    )


def test_settings_name_the_file_when_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUSLICE_CONFIG", f"{tmp_path}/no.yaml")
    (problem,) = _problems(node_name="node-a")
    assert problem.startswith(f"GPUSLICE_CONFIG {tmp_path}/no.yaml cannot be read: ")
    assert problem.endswith("give a readable YAML file")


def test_settings_say_how_to_give_the_node_when_nothing_does() -> None:
    (problem,) = _problems()
    assert problem == (
        "--node-name is not set: give the flag, GPUSLICE_NODE_NAME or NODE_NAME, or node-name in "
        "the file of --config"
    )


def test_settings_refuse_unknown_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSLICE_STATE_DIRS", "/x")
    monkeypatch.setenv("GPUSLICE_FOO", "1")
    listed = "unset it, the variables are listed by gpuslice plugin --help"
    assert _problems(node_name="node-a") == [
        f"unknown variable GPUSLICE_FOO; {listed}",
        f"unknown variable GPUSLICE_STATE_DIRS (did you mean GPUSLICE_STATE_DIR?); {listed}",
    ]


@pytest.mark.parametrize(
    "variable",
    [
        "GPUSLICE_SERVICE_HOST",
        "GPUSLICE_SERVICE_PORT_HTTP",
        "GPUSLICE_METRICS_PORT",
        "GPUSLICE_METRICS_PORT_8080_TCP_ADDR",
        "GPUSLICE_GPU_UUID",
        "GPUSLICE_CACHE_DIR",
    ],
)
def test_settings_bear_variables_that_others_set(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "1")
    load({"node_name": "node-a"})


def test_settings_list_all_problems_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUSLICE_FOO", "1")
    config = _file(tmp_path, "foo: 1\n")
    problems = _problems(config=config, state_dir="x", log_level="y")
    assert [line.split(" ")[0] for line in problems] == [
        "unknown",
        f"{config}:",
        "--node-name",
        "--state-dir",
        "--log-level",
    ]


def test_settings_describe_every_field() -> None:
    for name, field in Settings.model_fields.items():
        assert str(field.description).endswith("."), name
        assert flag_of(name).startswith("--")
        assert variable_of(name).startswith("GPUSLICE_")
