"""Changes to what containerd reads of a claim, for pods that use it from then on."""

import json
from pathlib import Path

from tests.cluster.checkpoint_site import Checkpoints
from tests.cluster.deployed import DRIVER
from tests.cluster.life_site import WHOLE, Site
from tests.kube.client import Json

MARKER = "/run/gpuslice/claim"
"""By this file in its mounts, the hook takes a container for one with a claim."""


def claim_with(checkpoints: Checkpoints, *hooks: Json) -> str:
    """Make a claim of a GPU whose spec has these hooks; gives its UID.

    A pod holds it, so that it stays prepared; others use it by its name ``gpu``.
    """
    site = checkpoints.site
    site.create_claim("gpu", WHOLE)
    site.create_with("holder", "gpu")
    site.started("holder")
    uid = str(site.claim("gpu")["metadata"]["uid"])
    path = site.cluster.cdi_dir / f"{DRIVER}-claim_{uid}.json"
    spec = json.loads(path.read_text())
    for device in spec["devices"]:
        edits = device["containerEdits"]
        edits["hooks"] = [*edits.get("hooks", ()), *hooks]
        mounts = edits.setdefault("mounts", [])
        if MARKER not in [mount["containerPath"] for mount in mounts]:
            mounts.append(_mark(site))
    new = path.with_suffix(".new")
    new.write_text(json.dumps(spec))
    new.rename(path)
    return uid


def hook(path: Path, name: str, *arguments: str) -> Json:
    """Describe a hook of an OCI runtime."""
    return {"hookName": name, "path": str(path), "args": [path.name, *arguments]}


def _mark(site: Site) -> Json:
    site.folder.mkdir(exist_ok=True)
    (site.folder / "claim").touch()
    path = f"/run/{site.namespace}/claim"
    return {"hostPath": path, "containerPath": MARKER, "options": ["bind", "ro"]}
