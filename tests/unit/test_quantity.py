from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity as reference

from dra_driver.model.quantity import format_bytes, parse_quantity

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]


@given(st.decimals(min_value=-(10**6), max_value=10**6, places=3), st.sampled_from(SUFFIXES))
def test_parse_quantity_agrees_with_the_kubernetes_client(number: Decimal, suffix: str) -> None:
    assert parse_quantity(f"{number}{suffix}") == reference(  # type: ignore[no-untyped-call]
        f"{number}{suffix}"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("6Gi", 6 << 30),
        ("6144Mi", 6 << 30),
        ("4G", 4 * 10**9),
        ("4e9", 4 * 10**9),
        ("4E9", 4 * 10**9),
        ("1E", 10**18),
        ("500m", Decimal("0.5")),
        ("+25", 25),
        (".5Gi", 1 << 29),
        ("1.", 1),
    ],
)
def test_parse_quantity_reads_every_spelling(text: str, value: Decimal | int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "6GB",
        "6 Gi",
        "Gi",
        "1e",
        "--1",
        "0x10",
        "NaN",
        "Infinity",
        "1" * 65,
        "\u0663Gi",
        "6Gi\n",
        "1e9999",
    ],
)
def test_parse_quantity_names_the_text_when_it_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity: write a number") as caught:
        parse_quantity(text)
    assert repr(text[:64]) in str(caught.value)


@given(st.integers(min_value=0, max_value=1 << 62))
def test_format_bytes_is_read_back_as_the_same_number(value: int) -> None:
    assert parse_quantity(format_bytes(value)) == value


def test_format_bytes_uses_the_largest_exact_suffix() -> None:
    assert [format_bytes(value) for value in (0, 1, 1 << 30, 1536 << 20)] == [
        "0",
        "1",
        "1Gi",
        "1536Mi",
    ]
