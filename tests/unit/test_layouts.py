"""Static layouts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.plan.layouts import WHOLE, Layout, Layouts, SlotGroup, parse_layouts
from tests import builders


def groups(*pairs: tuple[int, int]) -> Layout:
    return Layout(tuple(SlotGroup(compute_percent=p, count=c) for c, p in pairs))


@pytest.mark.parametrize("text", ["", "  ", "whole", "0=whole"])
def test_parse_layouts_gives_whole_when_nothing_is_cut(text: str) -> None:
    assert parse_layouts(text).of(builders.gpu(0)) == WHOLE


def test_parse_layouts_sorts_groups_by_size_when_they_come_in_any_order() -> None:
    parsed = parse_layouts("2x25+5x10")
    assert parsed == Layouts(default=groups((5, 10), (2, 25)))
    assert parse_layouts("1x25+5x10+1x25") == parsed


def test_of_prefers_uuid_over_index_over_default_when_all_match() -> None:
    gpu = builders.gpu(1)
    layouts = parse_layouts(f" 4x25 , 1=2x50 , {gpu.uuid}=1x100 ,0=whole")
    assert layouts.of(gpu) == groups((1, 100))
    assert layouts.of(builders.gpu(1, uuid=builders.uuid(9))) == groups((2, 50))
    assert layouts.of(builders.gpu(0)) == WHOLE
    assert layouts.of(builders.gpu(2)) == groups((4, 25))


def test_unmatched_names_selectors_when_no_gpu_has_them() -> None:
    layouts = parse_layouts("0=whole,7=2x50,GPU-gone=whole")
    assert layouts.unmatched((builders.gpu(0),)) == ("7", "GPU-gone")


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("4x26", "4x26"),
        ("11x10", "11x10"),
        ("2x25,3x50", "3x50"),
        ("2x25,4x25", "4x25"),
        ("0=2x25,0=whole", "0=whole"),
        ("half", "half"),
        ("4x0", "4x0"),
        ("0x25", "0x25"),
        ("1x101", "1x101"),
        ("2x25+", "2x25+"),
        ("2x25,,", "''"),
        ("=whole", "=whole"),
        ("01=whole", "01=whole"),
        ("GPU a=whole", "GPU a=whole"),
        ("\u0664x25", "\u0664x25"),
        ("4X25", "4X25"),
        ("-1x25", "-1x25"),
    ],
)
def test_parse_layouts_names_piece_and_grammar_when_it_is_malformed(text: str, piece: str) -> None:
    with pytest.raises(ValueError, match=r"\[SELECTOR=\]LAYOUT") as raised:
        parse_layouts(text)
    assert piece in str(raised.value)


@given(st.text(alphabet="0123456789x+,=whole GPU-", max_size=30))
def test_parse_layouts_never_gives_more_than_a_gpu_when_it_accepts(text: str) -> None:
    try:
        layouts = parse_layouts(text)
    except ValueError:
        return
    for layout in (layouts.default, *(each for _, each in layouts.selected)):
        assert sum(group.count * group.compute_percent for group in layout.groups) <= 100
