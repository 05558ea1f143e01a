"""What runs: for bug reports."""

from __future__ import annotations

import json
import platform
from importlib import metadata

from dra_driver import __version__

_LIBRARIES = ("grpcio", "protobuf", "kubernetes", "nvidia-ml-py", "pydantic", "opentelemetry-sdk")


def versions() -> dict[str, str]:
    """Names and versions, the most telling first; what is not installed is left out."""
    found = {"gpuslice": __version__}
    if commit := _commit():
        found["commit"] = commit
    found["python"] = platform.python_version()
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    """The commit that pip installed from, where it knows (PEP 610)."""
    try:
        text = metadata.distribution("gpuslice").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return ""
    origin = json.loads(text or "{}")
    return str(origin.get("vcs_info", {}).get("commit_id", ""))
