"""What a container under MPS gets beside its GPU: the way to the daemon, and its own limits.

Source: CUDA MPS guide, "Environment Variables". Limits of the environment only lower those of the
server, and bind processes that keep their environment; a spec's variable replaces the image's and
the pod's own. Once one entry of the memory limit names a GPU that the process does not see, the
client drops all of them, so there is exactly one, of ordinal 0: a daemon of ours has one GPU.

Nothing is mounted at /dev/shm: clients of Volta and later need no memory in common with the daemon
there, and a pod may bring its own.
"""

from __future__ import annotations

from typing import assert_never

from dra_driver.model.cdi import NO_EDITS, Edits, Mount
from dra_driver.model.share import Expose, GpuShare, Sharing
from dra_driver.plan.mps_paths import CONTAINER_FOLDER, pipe_folder, share_folder

PIPE_DIRECTORY_ENV = "CUDA_MPS_PIPE_DIRECTORY"
PERCENTAGE_ENV = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY_LIMIT_ENV = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
PRIORITY_ENV = "CUDA_MPS_CLIENT_PRIORITY"

_MOUNT_OPTIONS = ("rbind", "ro", "nosuid", "nodev", "noexec")
"""Read-only keeps nobody from connecting to a socket."""


def mps_edits(share: GpuShare, *, run_dir: str | None) -> Edits:
    """Give the edits of a share, none unless MPS enforces it.

    Args:
        share: what is enforced.
        run_dir: a folder of the host; None: it holds no folders of sockets.
    """
    if run_dir is None or share.sharing is not Sharing.MPS:
        return NO_EDITS
    priority = (f"{PRIORITY_ENV}={share.priority}",) if share.priority else ()
    return Edits(
        env=(
            f"{PIPE_DIRECTORY_ENV}={CONTAINER_FOLDER}",
            f"{PERCENTAGE_ENV}={share.compute_percent}.0",
            f"{MEMORY_LIMIT_ENV}=0={share.memory_mib}M",
            *priority,
        ),
        mounts=(
            Mount(
                host_path=_folder(share, run_dir),
                container_path=CONTAINER_FOLDER,
                options=_MOUNT_OPTIONS,
            ),
        ),
    )


def _folder(share: GpuShare, run_dir: str) -> str:
    match share.expose:
        case Expose.CONTROL:
            return share_folder(run_dir, share.id)
        case Expose.FOLDER:
            return pipe_folder(run_dir, share.gpu)
        case _ as never:
            assert_never(never)
