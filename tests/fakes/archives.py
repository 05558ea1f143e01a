"""Archives as containerd writes them, without CRIU's truth inside."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

NAME = "checkpoint-trainer_team-main-2026-11-30T17:00:10Z.tar"
CONFIG = {
    "name": "main_trainer_team_uid-trainer_0",
    "rootfsImageName": "docker.io/library/busybox:1",
}
SPEC = {
    "annotations": {
        "io.kubernetes.cri.container-name": "containerd",
        "io.kubernetes.cri.sandbox-name": "trainer",
        "io.kubernetes.cri.sandbox-namespace": "team",
        "io.kubernetes.cri.sandbox-uid": "uid-trainer",
    }
}


def write_checkpoint(
    folder: Path,
    *,
    config: dict[str, Any] | None = CONFIG,
    spec: dict[str, Any] | None = SPEC,
    payload: int = 1000,
) -> Path:
    """Write one; `payload` is the size of its memory pages in bytes."""
    path = folder / NAME
    contents = {"checkpoint/pages-1.img": (b"%08d" % 7) * (payload // 8)}
    if spec is not None:
        contents["spec.dump"] = json.dumps(spec).encode()
    if config is not None:
        contents["config.dump"] = json.dumps(config).encode()
    with tarfile.open(path, "w") as archive:
        for name, content in contents.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return path
