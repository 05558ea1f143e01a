"""Whether what was checkpointed can go on in a new container, and on which GPUs.

Sources: CUDA driver API, cuCheckpointProcessRestore (same chip, enough memory, a mapping of all
GPUs); CRIU's CUDA plugin gives no mapping, and a restored process maps the very files that it had,
so all mount points have to be there again; a further one does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dra_driver.model.cuda import DeviceMapping
from dra_driver.model.manifest import Field, Manifest, ManifestGpu, Mismatch
from dra_driver.plan.tiers import driver_branch

REMAP_BRANCH = 580
"""From this branch of the GPU driver on a process can go on on another GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatibility:
    """A verdict: it fits where there are no mismatches.

    Attributes:
        mismatches: in the order of Field.
        device_map: one entry for every GPU of the checkpoint, by `old`; empty where it does not
            fit.
    """

    mismatches: tuple[Mismatch, ...]
    device_map: tuple[DeviceMapping, ...] = ()


def compatibility(recorded: Manifest, actual: Manifest, *, partial: bool = False) -> Compatibility:
    """Compare a checkpoint's manifest with what a new container's claims would give.

    Args:
        recorded: when the checkpoint was taken.
        actual: as `build_manifest` describes the new container.
        partial: `actual` is of one claim of several.
    """
    pairs = _pairs(recorded.gpus, actual.gpus)
    of_all = (Field.COUNT, Field.MOUNTS, Field.DEVICES) if partial else ()
    found = tuple(each for each in _mismatches(recorded, actual, pairs) if each.field not in of_all)
    if found:
        return Compatibility(mismatches=found)
    mapped = tuple(DeviceMapping(old=old.uuid, new=new.uuid) for old, new in pairs)
    return Compatibility(mismatches=(), device_map=mapped)


_Pairs = tuple[tuple[ManifestGpu, ManifestGpu], ...]


def _pairs(old: tuple[ManifestGpu, ...], new: tuple[ManifestGpu, ...]) -> _Pairs:
    """Each old GPU with itself where it is there again, the others in the order of their UUIDs."""
    here = {gpu.uuid: gpu for gpu in new}
    kept = {gpu.uuid for gpu in old} & here.keys()
    free = iter(sorted(here.keys() - kept))
    pairs = []
    for gpu in sorted(old, key=lambda each: each.uuid):
        other = gpu.uuid if gpu.uuid in kept else next(free, None)
        if other is not None:
            pairs.append((gpu, here[other]))
    return tuple(pairs)


def _mismatches(recorded: Manifest, actual: Manifest, pairs: _Pairs) -> Iterator[Mismatch]:
    if recorded.node != actual.node:
        yield Mismatch(field=Field.NODE, recorded=recorded.node, actual=actual.node)
    if not recorded.host_only:
        yield from _of_gpus(recorded, actual, pairs)
    missing = sorted(set(recorded.container_paths) - set(actual.container_paths))
    if missing:
        yield Mismatch(field=Field.MOUNTS, recorded=_few(missing), actual="nothing")
    if not recorded.host_only:
        yield from _other_gpu(recorded, actual, pairs)


def _of_gpus(recorded: Manifest, actual: Manifest, pairs: _Pairs) -> Iterator[Mismatch]:
    if len(recorded.gpus) != len(actual.gpus):
        yield _differs(Field.COUNT, len(recorded.gpus), len(actual.gpus))
    for old, new in pairs:
        if old.product_name != new.product_name or recorded.simulated != actual.simulated:
            yield _differs(
                Field.MODEL, _model(old, recorded.simulated), _model(new, actual.simulated)
            )
        if old.compute_capability != new.compute_capability:
            yield _differs(Field.CAPABILITY, old.compute_capability, new.compute_capability)
    if recorded.driver_version != actual.driver_version:
        yield _differs(Field.DRIVER, recorded.driver_version, actual.driver_version)
    if recorded.library != actual.library:
        yield _differs(Field.LIBRARY, recorded.library, actual.library)
    for old, new in pairs:
        if old.sharing != new.sharing:
            yield _differs(Field.MODE, old.sharing or "exclusive", new.sharing or "exclusive")
        if new.held_memory_mib < old.held_memory_mib:
            yield _differs(Field.MEMORY, f"{old.held_memory_mib} MiB", f"{new.held_memory_mib} MiB")


def _other_gpu(recorded: Manifest, actual: Manifest, pairs: _Pairs) -> Iterator[Mismatch]:
    moved = [(old.uuid, new.uuid) for old, new in pairs if old.uuid != new.uuid]
    if not moved:
        if missing := sorted(set(recorded.device_paths) - set(actual.device_paths)):
            yield _differs(Field.DEVICES, _few(missing), "nothing")
        return
    branch = driver_branch(actual.driver_version)
    if recorded.driver_owned and branch is not None and branch >= REMAP_BRANCH:
        return
    why = (
        f"which needs GPU driver {REMAP_BRANCH} or later"
        if recorded.driver_owned
        else "but CRIU restores onto the same GPU alone"
    )
    yield _differs(Field.GPU, moved[0][0], f"{moved[0][1]}, {why}")


def _model(gpu: ManifestGpu, simulated: bool) -> str:  # noqa: FBT001 - one of two words
    return f"{gpu.product_name}{', simulated' if simulated else ''}"


def _differs(field: Field, recorded: object, actual: object) -> Mismatch:
    return Mismatch(field=field, recorded=_told(recorded), actual=_told(actual))


def _told(value: object) -> str:
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    return "nothing" if value in (None, "") else str(value)


def _few(paths: list[str]) -> str:
    rest = f" and {len(paths) - 3} more" if len(paths) > 3 else ""  # noqa: PLR2004
    return ", ".join(paths[:3]) + rest
