"""Static layouts: how a GPU is cut where the API server cannot count shares."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dra_driver.model.device import GpuFacts
from dra_driver.plan.amounts import COMPUTE_WHOLE_PERCENT

GRAMMAR = (
    "write a comma-separated list of [SELECTOR=]LAYOUT: SELECTOR is a GPU's UUID or index, LAYOUT "
    "is 'whole' or COUNTxPERCENT, joined by '+', of at most 100 percent together, such as "
    "4x25,0=whole,GPU-6f0e…=2x25+5x10"
)

_GROUP = re.compile(r"^([1-9][0-9]{0,2})x([1-9][0-9]{0,2})$", re.ASCII)
_INDEX = re.compile(r"^(0|[1-9][0-9]{0,5})$", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class SlotGroup:
    """Equal slots of one GPU."""

    compute_percent: int
    count: int


@dataclass(frozen=True, slots=True)
class Layout:
    """How one GPU is cut: groups by size, smallest first; none means whole."""

    groups: tuple[SlotGroup, ...] = ()

    @property
    def whole(self) -> bool:
        return not self.groups


WHOLE = Layout()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """Layouts of a node.

    Attributes:
        default: of GPUs that no selector names.
        selected: UUID or index → layout, sorted by selector; a UUID wins over an index.
    """

    default: Layout = WHOLE
    selected: tuple[tuple[str, Layout], ...] = ()

    def of(self, gpu: GpuFacts) -> Layout:
        selected = dict(self.selected)
        return selected.get(gpu.uuid, selected.get(str(gpu.index), self.default))

    def unmatched(self, gpus: tuple[GpuFacts, ...]) -> tuple[str, ...]:
        """Selectors that name none of `gpus`."""
        known = {str(gpu.uuid) for gpu in gpus} | {str(gpu.index) for gpu in gpus}
        return tuple(selector for selector, _ in self.selected if selector not in known)


def parse_layouts(text: str) -> Layouts:
    """Read the value of `--static-layout`; empty means whole.

    Raises:
        ValueError: names the piece that is wrong and the grammar.
    """
    default: Layout | None = None
    selected: dict[str, Layout] = {}
    for piece in text.split(",") if text.strip() else ():
        selector, equals, layout_text = piece.strip().rpartition("=")
        layout = _parse_layout(layout_text.strip(), piece.strip())
        if not equals:
            if default is not None:
                raise _wrong(piece.strip(), "is a second layout without a selector")
            default = layout
            continue
        key = _selector(selector.strip(), piece.strip())
        if key in selected:
            raise _wrong(piece.strip(), f"names {key} a second time")
        selected[key] = layout
    return Layouts(default=default or WHOLE, selected=tuple(sorted(selected.items())))


def _parse_layout(text: str, piece: str) -> Layout:
    if text == "whole":
        return WHOLE
    counts: dict[int, int] = {}
    for part in text.split("+"):
        match = _GROUP.match(part.strip())
        if match is None:
            raise _wrong(piece, f"holds {part.strip()!r}, which is no layout")
        count, percent = (int(number) for number in match.groups())
        counts[percent] = counts.get(percent, 0) + count
    total = sum(percent * count for percent, count in counts.items())
    if total > COMPUTE_WHOLE_PERCENT:
        raise _wrong(piece, f"adds up to {total} percent of one GPU")
    groups = (SlotGroup(compute_percent=p, count=c) for p, c in sorted(counts.items()))
    return Layout(tuple(groups))


def _selector(text: str, piece: str) -> str:
    if not text or (text.isdigit() and not _INDEX.match(text)) or any(map(str.isspace, text)):
        raise _wrong(piece, f"has the selector {text!r}")
    return text


def _wrong(piece: str, why: str) -> ValueError:
    return ValueError(f"{piece!r} {why}: {GRAMMAR}")
