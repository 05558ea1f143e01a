from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dra_driver import __version__
from dra_driver.cli.options import variables
from dra_driver.settings import Settings, flag_of
from tests import builders
from tests.command_line import Ended, Run

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["plugn"], "no such command 'plugn', did you mean 'plugin'; see gpuslice --help"),
        (["plugin", "--no"], "no such option: --no; see gpuslice plugin --help"),
        (["explain"], "missing option '--claim'; see gpuslice explain --help"),
        (
            ["version", "now"],
            "got unexpected extra argument(s) (now); see gpuslice version --help",
        ),
        (
            ["plugin", "--state-dir"],
            "option '--state-dir' requires an argument; see gpuslice plugin --help",
        ),
        (
            ["inventory", "--simulate", "no-such-node"],
            (
                "--simulate no-such-node: there is no such file and no ready node of that name; give a "
                "file or one of 2xt4, 4xl40s, 8xa100-40gb, 8xh100-80gb, mixed, none"
            ),
        ),
    ],
)
def test_cli_says_one_sentence_and_ends_with_2_when_it_is_used_wrongly(
    run: Run, arguments: list[str], sentence: str
) -> None:
    assert run(*arguments) == Ended(2, "", f"gpuslice: {sentence}\n")


def test_cli_lists_every_bad_setting(run: Run) -> None:
    ended = run("plugin", "--driver-name", "GPU", "--http-endpoint", "x")
    assert (ended.status, ended.out) == (2, "")
    lines = ended.err.splitlines()
    assert [line.split(" ")[1] for line in lines] == [
        "--node-name",
        "--driver-name",
        "--http-endpoint",
        "--kubeconfig",
    ]
    assert all(line.startswith("gpuslice: ") for line in lines)


def test_cli_help_documents_every_setting(run: Run) -> None:
    ended = run("plugin", "--help")
    words = ended.out.replace(",", " ").replace(". ", " ").replace(".\n", " ").split()
    assert ended.status == 0
    for name in Settings.model_fields:
        assert flag_of(name) in words
        assert set(variables(name)) <= set(words)
    text = " ".join(ended.out.split())
    assert "Exit status: 0 after success or a signal to stop, 1 where" in text
    assert "Default: /var/lib/kubelet/plugins_registry." in text


def test_cli_lists_its_commands_when_nothing_is_asked(run: Run) -> None:
    ended = run()
    assert (ended.status, ended.err) == (0, "")
    for command in ("plugin", "inventory", "explain", "version"):
        assert f"  {command} " in ended.out
    assert "..." not in ended.out.replace("COMMAND [ARGS]...", "")


def test_cli_prints_versions(run: Run) -> None:
    assert run("version").out.splitlines()[0] == f"gpuslice {__version__}"
    found = json.loads(run("version", "--json").out)
    assert found["gpuslice"] == __version__
    assert {"python", "grpcio", "protobuf", "kubernetes"} <= set(found)


def test_inventory_lists_gpus_and_what_is_left_out(run: Run, simulation: str) -> None:
    ended = run("inventory", "--simulate", simulation)
    assert (ended.status, ended.err) == (0, "")
    driver, header, *rows = ended.out.splitlines()
    assert driver == "Driver 570.133.20, CUDA 12.8, simulated"
    assert header.split() == (
        [
            "#",
            "UUID",
            "Product",
            "Memory",
            "MiB",
            "Usable",
            "MiB",
            "SMs",
            "NUMA",
            "NVLink",
            "Tier",
            "Health",
        ]
    )
    assert rows[0].split() == (
        f"0 {builders.uuid(0)} NVIDIA H100 80GB HBM3 81559 80163 132 1 n0 standard Healthy".split()
    )
    assert rows[1].split()[-2:] == ["-", "Healthy"]
    notes = rows[rows.index("Notes:") + 1 :]
    assert len(notes) == 2
    assert any("offered whole: cannot be shared: MPS needs Volta" in note for note in notes)
    assert any(f"{builders.uuid(2)}: left out: " in note for note in notes)


def test_inventory_prints_the_same_as_json(run: Run, simulation: str) -> None:
    report = json.loads(run("inventory", "--simulate", simulation, "--json").out)
    assert report["driverVersion"] == "570.133.20"
    assert [gpu["uuid"] for gpu in report["gpus"]] == [builders.uuid(0), builders.uuid(1)]
    assert report["gpus"][0]["memoryUsableMiB"] == 80163
    assert report["gpus"][1]["tier"] is None
    assert len(report["notes"]) == 2


def test_inventory_says_so_when_there_is_no_gpu(run: Run) -> None:
    ended = run("inventory", "--simulate", "none")
    assert ended.status == 0
    assert ended.out.splitlines()[1] == "This node has no GPU that can be read."


def test_inventory_ends_with_1_when_the_driver_is_not_loaded(run: Run, tmp_path: Path) -> None:
    ended = run("inventory", "--driver-root", str(tmp_path))
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("gpuslice: ")
    assert "install NVIDIA's driver" in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("command", ["version", "inventory"])
def test_cli_ends_with_1_when_its_output_cannot_be_written(command: str) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from dra_driver.cli import main; sys.exit(main())",
                command,
                *(["--simulate", "mixed"] if command == "inventory" else []),
            ],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=ROOT,
        )
    assert ended.returncode == 1
    assert ended.stderr == (
        "gpuslice: cannot write the output: [Errno 28] No space left on device\n"
    )


def test_cli_imports_nothing_heavy_before_a_command_runs() -> None:
    code = (
        "import sys, dra_driver.cli; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT
    )
    heavy = {"grpc", "kubernetes", "opentelemetry", "prometheus_client", "pynvml", "urllib3"}
    assert not heavy & set(ended.stdout.split())
