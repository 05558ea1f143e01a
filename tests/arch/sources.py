"""The repository's own Python files, for rules about them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_GENERATED = ("api/dra_api/kubelet/", "api/dra_api/mpsd/", "api/dra_api/checkpoint/")


@dataclass(frozen=True, slots=True)
class Source:
    """One file; `name` is its path from the repository's root."""

    name: str
    text: str

    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    def imports(self) -> Iterator[tuple[int, str]]:
        """Line and full name of each module or member that is imported, wherever it stands."""
        for node in ast.walk(self.tree()):
            match node:
                case ast.Import(names=names):
                    yield from ((node.lineno, alias.name) for alias in names)
                case ast.ImportFrom(module=str(module), level=0, names=names):
                    yield from ((node.lineno, f"{module}.{alias.name}") for alias in names)
                case _:
                    pass


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Hand-written Python files below these folders of the root, by name."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    names = [str(path.relative_to(ROOT)) for path in paths]
    return tuple(
        Source(name, path.read_text(encoding="utf-8"))
        for name, path in zip(names, paths, strict=True)
        if not name.startswith(_GENERATED)
    )
