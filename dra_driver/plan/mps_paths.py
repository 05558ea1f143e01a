"""Where MPS keeps its sockets, below the run folder of one node.

All lies below one folder, hence one mount: a hard link cannot lead to another.
"""

from __future__ import annotations

from dra_driver.model.device import GpuUuid

CONTAINER_FOLDER = "/run/gpuslice/mps"
"""Where a container finds the sockets of its share."""


def pipe_folder(run_dir: str, gpu: GpuUuid) -> str:
    """The daemon's own folder: its sockets, its lock and its pid."""
    return f"{run_dir}/mps/{gpu}/pipe"


def log_folder(run_dir: str, gpu: GpuUuid) -> str:
    return f"{run_dir}/mps/{gpu}/log"


def share_folder(run_dir: str, share: str) -> str:
    """What a container of this share has mounted: a hard link to the socket `control` alone."""
    return f"{run_dir}/shares/{share}"
