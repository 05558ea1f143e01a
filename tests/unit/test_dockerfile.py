"""The Dockerfile, as far as it can be judged without a container engine."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

from dra_driver import __version__
from tests import manifests
from tests.arch.sources import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTRUCTIONS = {
    "ARG",
    "FROM",
    "ENV",
    "WORKDIR",
    "COPY",
    "RUN",
    "LABEL",
    "USER",
    "ENTRYPOINT",
    "CMD",
}


def _instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    pairs = (line.partition(" ") for line in joined.splitlines() if line.strip())
    return [(name, rest.strip()) for name, _, rest in pairs]


def _of(wanted: str) -> list[str]:
    return [rest for name, rest in _instructions() if name == wanted]


def test_dockerfile_has_known_instructions_in_two_stages() -> None:
    assert {name for name, _ in _instructions()} == INSTRUCTIONS
    assert _of("FROM") == ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"]


def test_dockerfile_copies_what_is_there_and_all_that_the_wheel_is_made_of() -> None:
    copied: set[str] = set()
    for line in _of("COPY"):
        *sources, target = line.split()
        if sources[0] == "--from=build":
            assert (sources[1:], target) == (["/opt/gpuslice"], "/opt/gpuslice")
            continue
        copied.update(sources)
        # A folder is copied by its content, so it has to be named again.
        assert target == "./" or [target] == sources
    assert all((ROOT / path).exists() for path in copied)
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    packages = set(tool["hatch"]["build"]["targets"]["wheel"]["packages"])
    documents = {PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml"}
    assert packages | documents <= copied


def test_dockerfile_installs_by_the_locks_only() -> None:
    installs = [line for line in " && ".join(_of("RUN")).split("&&") if " pip" in line]
    from_index = [line for line in installs if "-r " in line]
    assert [line.split("-r ")[1].split()[0] for line in from_index] == [
        "requirements.lock",
        "build.lock",
    ]
    assert all("--require-hashes" in line and "--no-deps" in line for line in from_index)
    others = [line for line in installs if line not in from_index]
    assert len(others) == 2
    assert all("--no-deps" in line for line in others)
    assert "--no-build-isolation" in others[0]


def test_dockerfile_takes_the_build_backend_out_of_the_lock(tmp_path: Path) -> None:
    (step,) = (line for line in _of("RUN") if line.startswith("for name in"))
    (tmp_path / "requirements-dev.lock").symlink_to(ROOT / "requirements-dev.lock")
    script = step.partition("&&")[0].replace("  ", " ")
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, check=True)
    lock = (tmp_path / "build.lock").read_text()
    pinned = re.findall(r"^([\w-]+)==\S+ \\$", lock, re.MULTILINE)
    # What hatchling itself needs; there is nothing else to install without dependencies.
    assert pinned == ["hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers"]
    rest = re.sub(
        r"^[\w-]+==\S+ \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+", "", lock, flags=re.MULTILINE
    )
    assert rest == ""


def test_dockerfile_labels_the_image_as_the_project_is() -> None:
    (line,) = _of("LABEL")
    labels = dict(word.split("=", 1) for word in shlex.split(line))
    prefix = "org.opencontainers.image."
    assert {key.removeprefix(prefix) for key in labels} == {
        "title",
        "description",
        "licenses",
        "version",
        "revision",
        "created",
        "source",
    }
    assert labels[f"{prefix}title"] == PROJECT["name"]
    assert labels[f"{prefix}description"] == PROJECT["description"]
    assert labels[f"{prefix}licenses"] == PROJECT["license"]
    arguments = dict(each.split("=", 1) for each in _of("ARG"))
    assert arguments["VERSION"] == __version__
    variables = {value for value in labels.values() if value.startswith("${")}
    assert {each.strip("${}") for each in variables} <= set(arguments)


def test_dockerfile_builds_the_programs_into_the_folder_that_is_kept() -> None:
    (step,) = (line for line in _of("RUN") if line.startswith("hack/native"))
    assert step == "hack/native /opt/gpuslice/bin"
    kept = [line for line in _of("COPY") if line.startswith("--from=build")]
    assert kept == ["--from=build /opt/gpuslice /opt/gpuslice"]
    (mpsd,) = manifests.pod_spec(manifests.daemon_set("mpsd"))["containers"]
    init, program = mpsd["command"]
    assert (ROOT / f"dra_driver/native/{init.removeprefix('gpuslice-')}.c").exists()
    assert program in PROJECT["scripts"]


def test_image_starts_what_the_manifests_give_arguments_to() -> None:
    assert _of("ENTRYPOINT") == ['["gpuslice"]']
    assert "gpuslice" in PROJECT["scripts"]
    (plugin,) = manifests.pod_spec(manifests.daemon_set())["containers"]
    assert "command" not in plugin
    assert plugin["args"][0] == "plugin"
    (environment,) = (line for line in _of("ENV") if line.startswith("PATH="))
    assert environment.split()[0] == "PATH=/opt/gpuslice/bin:$PATH"
