"""What NVML's numbers mean. Source: nvml.h; cores per SM from the CUDA programming guide."""

from __future__ import annotations

BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
"""Spelled as NVIDIA's own DRA driver publishes them, so that selectors carry over."""

ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}

_CORES_PER_SM = {(6, 0): 64, (6, 1): 128, (6, 2): 128, (7, 0): 64, (7, 2): 64, (7, 5): 64}
_CORES_PER_SM |= {(8, 0): 64, (8, 6): 128, (8, 7): 128, (8, 9): 128}
_CORES_PER_SM_SINCE_HOPPER = 128
_HOPPER = (9, 0)


def architecture(number: int | None, capability: tuple[int, int] | None) -> str | None:
    """Name an architecture; by compute capability where an old driver does not say."""
    if number is not None:
        return ARCHITECTURES.get(number)
    match capability:
        case (8, 9):
            return "Ada Lovelace"
        case (7, 5):
            return "Turing"
        case (major, _):
            majors = {3: 2, 5: 3, 6: 4, 7: 5, 8: 7, 9: 9, 10: 10, 12: 10}
            return ARCHITECTURES.get(majors.get(major, 0))
        case None:
            return None


def sm_count(cores: int | None, capability: tuple[int, int] | None) -> int | None:
    """Count multiprocessors; NVML only counts cores of a whole GPU. None where it would be a guess.

    16,896 cores of compute capability 9.0 are the 132 SMs of an H100 SXM.
    """
    if not cores or capability is None:
        return None
    per_sm = _CORES_PER_SM.get(capability)
    if per_sm is None and capability >= _HOPPER:
        per_sm = _CORES_PER_SM_SINCE_HOPPER
    if per_sm is None or cores % per_sm:
        return None
    return cores // per_sm


def cuda_version(number: int | None) -> str | None:
    """Give "12.4" for NVML's 12040."""
    return None if not number else f"{number // 1000}.{number % 1000 // 10}"


def text(value: str | bytes | None) -> str:
    """Strings of NVML are bytes in older bindings."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
