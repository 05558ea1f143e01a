"""The driver's image from Debian's Python, the locked packages and this project's wheel.

``hack/image`` runs this. The lower layers change seldom and are kept; only the topmost is written
anew after a change of the code.
"""

import argparse
import compileall
import configparser
import email
import py_compile
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.kube.images import Image, add_file, add_folder, add_tree, write_archive

_PYTHON = (3, 11)
_SITE = f"usr/local/lib/python{_PYTHON[0]}.{_PYTHON[1]}/dist-packages"

# What a container mounts itself, what apt alone needs, and what people read.
_LEFT_OUT = (
    "dev",
    "proc",
    "sys",
    "run",
    "debootstrap",
    "var/cache",
    "var/lib/apt/lists",
    "var/log",
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
)
_EMPTY = ("dev", "proc", "sys", "run", "var/cache", "var/log")


def write_base_layer(root: Path, target: Path) -> None:
    """Write a layer from a Debian system in a folder, without what no container needs."""
    with tarfile.open(target, "w") as archive:
        for name in _EMPTY:
            add_folder(archive, name)
        add_tree(archive, root, keep=lambda path: str(path) not in _LEFT_OUT)


def write_packages_layer(packages: Path, target: Path) -> None:
    """Write a layer from a folder of installed Python packages."""
    _compile(packages)
    with tarfile.open(target, "w") as archive:
        # Scripts name the Python of the machine that installed them.
        add_tree(archive, packages, at=_SITE, keep=lambda path: str(path) != "bin")


def write_image(
    target: Path, *, name: str, layers: Sequence[Path], wheel: Path, programs: Path
) -> None:
    """Write the archive of the image ``name``, with the wheel's commands and programs on PATH."""
    with tempfile.TemporaryDirectory() as scratch:
        packages, layer = Path(scratch, "packages"), Path(scratch, "layer.tar")
        with zipfile.ZipFile(wheel) as content:
            content.extractall(packages)
        (metadata,) = packages.glob("*.dist-info/METADATA")
        (entry_points,) = packages.glob("*.dist-info/entry_points.txt")
        fields = email.message_from_string(metadata.read_text())
        scripts = configparser.ConfigParser()
        scripts.read(entry_points)
        _compile(packages)
        with tarfile.open(layer, "w") as archive:
            add_tree(archive, packages, at=_SITE)
            for command, where in scripts["console_scripts"].items():
                script = _script(*where.split(":"))
                add_file(archive, f"usr/local/bin/{command}", script.encode(), mode=0o755)
            for program in sorted(programs.iterdir()):
                add_file(archive, f"usr/local/bin/{program.name}", program.read_bytes(), mode=0o755)
        image = Image(
            name=name,
            layers=(*layers, layer),
            entrypoint=(fields["Name"],),
            environment=("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",),
            labels={
                "org.opencontainers.image.title": fields["Name"],
                "org.opencontainers.image.version": fields["Version"],
                "org.opencontainers.image.licenses": fields["License-Expression"],
            },
        )
        write_archive(target, [image])


def _script(module: str, function: str) -> str:
    return f"#!/usr/bin/python3\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"


def _compile(packages: Path) -> None:
    """Compile ahead of the first start, which takes seconds otherwise.

    Times of files are not kept, so that nothing may depend on them.
    """
    if sys.version_info[:2] == _PYTHON:
        compileall.compile_dir(
            packages,
            quiet=2,
            stripdir=str(packages),
            prependdir=f"/{_SITE}",
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    for name, write in (("base", write_base_layer), ("packages", write_packages_layer)):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        command.add_argument("target", type=Path)
        command.set_defaults(run=lambda options, write=write: write(options.folder, options.target))
    image = commands.add_parser("image")
    image.add_argument("target", type=Path)
    image.add_argument("--name", required=True)
    image.add_argument("--wheel", type=Path, required=True)
    image.add_argument("--programs", type=Path, required=True)
    image.add_argument("layers", type=Path, nargs="+")
    image.set_defaults(
        run=lambda options: write_image(
            options.target,
            name=options.name,
            layers=options.layers,
            wheel=options.wheel,
            programs=options.programs,
        )
    )
    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    main()
