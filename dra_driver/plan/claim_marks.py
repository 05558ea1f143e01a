"""By what a container shows which claim it has, and what a runtime calls around its life.

The file is mounted by the claim's CDI spec, always at one path: the mount points of a checkpointed
container have to be there again when it is restored with another claim. What is mounted tells the
claim, and no container can change that. Of two claims of a container the later one's file is seen;
the kubelet tells the other.
"""

from __future__ import annotations

from dra_driver.model.cdi import Edits, Hook, Mount

MARKER_PATH = "/run/gpuslice/claim"
"""In the container; the program gpuslice-hook looks for it."""

_MOUNT_OPTIONS = ("ro", "nosuid", "nodev", "noexec", "bind")
_HOOKS = ("createRuntime", "poststop")


def marker_file(run_dir: str, claim_uid: str) -> str:
    return f"{run_dir}/claims/{claim_uid}"


def claim_edits(claim_uid: str, *, run_dir: str, hook: str | None) -> Edits:
    """Give what every container of a claim gets.

    Args:
        claim_uid: of the claim.
        run_dir: the run folder on the host.
        hook: path of the program gpuslice-hook on the host; None: it is not called.
    """
    mount = Mount(
        host_path=marker_file(run_dir, claim_uid),
        container_path=MARKER_PATH,
        options=_MOUNT_OPTIONS,
    )
    return Edits(mounts=(mount,), hooks=_hooks(claim_uid, hook) if hook is not None else ())


def _hooks(claim_uid: str, hook: str) -> tuple[Hook, ...]:
    program = hook.rpartition("/")[2]
    return tuple(
        Hook(name=name, path=hook, args=(program, "--claim", claim_uid, "oci", name))
        for name in _HOOKS
    )
