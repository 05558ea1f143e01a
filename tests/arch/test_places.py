"""Each third party has one home, so that it can be replaced, faked and upgraded in one place."""

from __future__ import annotations

import ast

import pytest

from tests.arch.sources import Source, sources

_EDGES_WITH_GRPC = (
    "dra_driver/kubelet/",
    "dra_driver/checkpoint/",
    "dra_driver/mps/",
    "dra_driver/sim/",
    "dra_driver/adapters/checkpoint_client",
    "dra_driver/adapters/mpsd_client",
    "dra_driver/adapters/pod_resources",
)
HOMES = {
    "grpc": _EDGES_WITH_GRPC,
    "kubernetes": ("dra_driver/adapters/kube",),
    "urllib3": ("dra_driver/adapters/kube",),
    "websocket": ("dra_driver/adapters/kube",),
    "pynvml": ("dra_driver/adapters/nvml",),
    "ctypes": (
        "dra_driver/adapters/nvml",
        "dra_driver/adapters/cuda_client",
        "dra_driver/adapters/cuda_helper",
        "dra_driver/adapters/memory",
    ),
    "subprocess": ("dra_driver/adapters/process",),
    "tenacity": ("dra_driver/adapters/", "dra_driver/loops/"),
    "opentelemetry": ("dra_driver/telemetry/",),
    "prometheus_client": ("dra_driver/telemetry/",),
    "http": ("dra_driver/telemetry/", "dra_driver/sim/", "dra_driver/adapters/kube_kept"),
    "pydantic": ("api/dra_api/config", "dra_driver/settings/"),
    "pydantic_core": ("api/dra_api/config", "dra_driver/settings/"),
    "pydantic_settings": ("dra_driver/settings/",),
    "structlog": ("dra_driver/log.py",),
    "logging": ("dra_driver/log.py",),
    "typer": ("dra_driver/cli",),
    "rich": ("dra_driver/cli", "dra_driver/app/demo"),
    "celpy": ("dra_driver/sim/cel",),
    "lark": ("dra_driver/sim/cel",),
    "yaml": ("dra_driver/adapters/", "dra_driver/app/", "dra_driver/settings/", "dra_driver/sim/"),
}
"""Top-level module → prefixes of the files that may import it."""

CATCH_ALL = (
    "dra_driver/checkpoint/handler.py",
    "dra_driver/kubelet/calls.py",
    "dra_driver/loops/guard.py",
)
"""The edges where an unforeseen error is turned into an answer or ends the process."""


@pytest.mark.parametrize("module", sorted(HOMES))
def test_module_is_imported_in_its_home_only(module: str) -> None:
    strangers = [
        f"{source.name}:{line} imports {name}; its home is {' or '.join(HOMES[module])}"
        for source in sources("dra_driver", "api")
        for line, name in source.imports()
        if name.split(".")[0] == module and not source.name.startswith(HOMES[module])
    ]
    assert not strangers, "\n".join(strangers)


def test_everything_is_caught_at_the_edges_only() -> None:
    broad = [
        f"{source.name}:{line} catches everything; name the errors that can come"
        for source in sources("dra_driver", "api")
        if source.name not in CATCH_ALL
        for line in _broad_handlers(source)
    ]
    assert not broad, "\n".join(broad)


def test_tests_replace_nothing_behind_the_codes_back() -> None:
    patches = [
        f"{source.name}:{line} imports {name}; put a fake behind a port"
        for source in sources("tests")
        for line, name in source.imports()
        if name.startswith(("unittest.mock", "mock.", "pytest_mock"))
    ]
    assert not patches, "\n".join(patches)


def _broad_handlers(source: Source) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(source.tree())
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _passes_on(node)
    ]


def _passes_on(handler: ast.ExceptHandler) -> bool:
    """Whether it only tidies up: its last statement raises the same error again."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def _is_broad(caught: ast.expr | None) -> bool:
    match caught:
        case None:
            return True
        case ast.Name(id=name):
            return name in {"Exception", "BaseException"}
        case ast.Tuple(elts=elements):
            return any(_is_broad(element) for element in elements)
        case _:
            return False
