"""Kubernetes quantities, as numbers.

Source: k8s.io/apimachinery/pkg/api/resource, Quantity. The API server stores them in a canonical
spelling of its own ("81920Mi" comes back as "80Gi"), so they are compared as numbers, not as text.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

MIB = 1 << 20

_SYNTAX = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,3}|)", re.ASCII
)
_FACTOR = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(1 << 10),
    "Mi": Decimal(1 << 20),
    "Gi": Decimal(1 << 30),
    "Ti": Decimal(1 << 40),
    "Pi": Decimal(1 << 50),
    "Ei": Decimal(1 << 60),
}
_MAX_LENGTH = 64


@lru_cache(maxsize=1024)
def parse_quantity(text: str) -> Decimal:
    """Give the number that a quantity stands for, in base units (bytes for memory).

    Raises:
        ValueError: not a quantity; the text names it and the accepted spellings.
    """
    match = _SYNTAX.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ValueError(
            f"{text[:_MAX_LENGTH]!r} is not a quantity: write a number with an optional suffix, "
            "such as 6Gi, 1536Mi, 4G or 25"
        )
    number, suffix = match.groups()
    factor = _FACTOR.get(suffix)
    if factor is None:
        factor = Decimal(f"1{suffix}")
    return Decimal(number) * factor


def format_bytes(value_bytes: int) -> str:
    """Spell a whole number of bytes as Kubernetes does: the largest binary suffix that is exact."""
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        factor = int(_FACTOR[suffix])
        if value_bytes and value_bytes % factor == 0:
            return f"{value_bytes // factor}{suffix}"
    return str(value_bytes)
