"""Files and functions stay short enough to be read at once."""

from __future__ import annotations

import ast

from tests.arch.sources import sources

FILE_LINES = 300
FUNCTION_LINES = 40


def test_files_are_short() -> None:
    long = [
        f"{source.name}: {lines} lines, at most {FILE_LINES}; split it by what it is about"
        for source in sources("dra_driver", "api", "tests", "hack")
        if (lines := len(source.text.splitlines())) > FILE_LINES
    ]
    assert not long, "\n".join(long)


def test_functions_are_short() -> None:
    long = [
        f"{source.name}:{node.lineno} {node.name}: {lines} lines, at most {FUNCTION_LINES}"
        for source in sources("dra_driver", "api", "tests", "hack")
        for node in ast.walk(source.tree())
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]
    assert not long, "\n".join(long)
