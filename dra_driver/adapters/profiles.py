"""Ready profiles of real boards and nodes for simulated inventories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dra_driver.errors import SettingsError
from dra_driver.model.quantity import MIB

_NODES = Path(__file__).parent / "nodes"
DEFAULT_BOARD = "h100-80gb-sxm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What NVML says of a board model.

    Attributes:
        total_bytes, reserved_bytes: NVML's memory info, version 2, of an idle board with ECC on.
    """

    product_name: str
    architecture: str
    total_bytes: int
    reserved_bytes: int
    sm_count: int
    compute_capability: tuple[int, int]
    brand: str = "Nvidia"


def _board(
    product_name: str,
    architecture: str,
    *,
    memory_mib: tuple[int, int],
    sm_count: int,
    capability: tuple[int, int],
) -> Board:
    total_mib, reserved_mib = memory_mib
    return Board(
        product_name=product_name,
        architecture=architecture,
        total_bytes=total_mib * MIB,
        reserved_bytes=reserved_mib * MIB,
        sm_count=sm_count,
        compute_capability=capability,
    )


# Memory: total and reserved MiB of "FB Memory Usage" in published output of `nvidia-smi -q` on the
# named board. The reserved part differs between drivers (328 to 516 on an H100); the largest
# reading is taken, so that nothing is promised which some driver keeps. SMs: NVIDIA's data sheets.
BOARDS: Mapping[str, Board] = {
    "t4": _board("Tesla T4", "Turing", memory_mib=(15360, 388), sm_count=40, capability=(7, 5)),
    "a100-40gb-sxm": _board(
        "NVIDIA A100-SXM4-40GB",
        "Ampere",
        memory_mib=(40960, 620),
        sm_count=108,
        capability=(8, 0),
    ),
    "a100-80gb-sxm": _board(
        "NVIDIA A100-SXM4-80GB",
        "Ampere",
        memory_mib=(81920, 869),
        sm_count=108,
        capability=(8, 0),
    ),
    "l4": _board(
        "NVIDIA L4", "Ada Lovelace", memory_mib=(23034, 434), sm_count=58, capability=(8, 9)
    ),
    "l40s": _board(
        "NVIDIA L40S", "Ada Lovelace", memory_mib=(46068, 685), sm_count=142, capability=(8, 9)
    ),
    "h100-80gb-sxm": _board(
        "NVIDIA H100 80GB HBM3", "Hopper", memory_mib=(81559, 516), sm_count=132, capability=(9, 0)
    ),
    "h200": _board(
        "NVIDIA H200", "Hopper", memory_mib=(143771, 700), sm_count=132, capability=(9, 0)
    ),
    # No reading of the reserved part was found; 1 GiB is an estimate on the safe side.
    "b200": _board(
        "NVIDIA B200", "Blackwell", memory_mib=(183359, 1024), sm_count=148, capability=(10, 0)
    ),
    # Older than MPS with limits: such a board is offered whole.
    "p100": _board(
        "Tesla P100-PCIE-16GB", "Pascal", memory_mib=(16384, 300), sm_count=56, capability=(6, 0)
    ),
}

ALIASES: Mapping[str, str] = {
    "a100-40gb": "a100-40gb-sxm",
    "a100-80gb": "a100-80gb-sxm",
    "h100-80gb": "h100-80gb-sxm",
    "h200-sxm": "h200",
}


def board(name: str) -> Board | None:
    """Give a board by profile name."""
    return BOARDS.get(ALIASES.get(name, name))


def node_profiles() -> tuple[str, ...]:
    """Names of the ready nodes, sorted."""
    return tuple(sorted(path.stem for path in _NODES.glob("*.yaml")))


def resolve_simulate(value: str) -> Path:
    """Find the file that `--simulate` means: a path, or the name of a ready node.

    Raises:
        SettingsError: it is neither.
    """
    if value in node_profiles():
        return _NODES / f"{value}.yaml"
    path = Path(value)
    if path.is_file():
        return path
    raise SettingsError(
        f"--simulate {value}: there is no such file and no ready node of that name; "
        f"give a file or one of {', '.join(node_profiles())}"
    )
