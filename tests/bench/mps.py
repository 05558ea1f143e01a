"""Figures of enforced shares: what they add to MPS itself, and to claims that go without it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from dra_api.kubelet import dra_v1_pb2 as dra
from tests.bench.drivers import GPUSLICE
from tests.bench.kubelet import Kubelet
from tests.bench.measure import FLOOR, Figures, Form
from tests.bench.mps_node import BareDaemon, MpsNode, mps_node
from tests.bench.site import NODE_GPUS, Site

_FIRST, _SHARED, _WHOLE, _BLOCKED = range(4)
_OTHERS = range(4, NODE_GPUS)
_FURTHER = 8
"""Claims that take turns as further shares of a GPU."""

_BLOCK_S = 40.0
_ROUNDS = 4
"""Of the block; half of those without it come before, half after."""

_FREE_ROUND_S = 5.0
_BLOCKED_ROUND_S = 9.0
_WAITING = 4
"""Calls for the GPU that is blocked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims:
    """Attributes: others: of each GPU that is not blocked, one that stands and further ones."""

    first: dra.Claim
    whole: dra.Claim
    further: Sequence[dra.Claim]
    others: Sequence[Sequence[dra.Claim]]
    blocked: Sequence[dra.Claim]


def measure_mps(site: Site, figures: Figures, form: Form, folder: Path) -> None:
    """Measure on a node of its own; `folder` gets the files of a daemon that nobody supervises."""
    with mps_node(site, NODE_GPUS) as node:
        kubelet, claims = node.driver.kubelet, _claims(node)
        daemon = BareDaemon(folder)
        try:
            _first_shares(figures, kubelet, daemon, claims, form)
        finally:
            daemon.kill()
        _further_shares(figures, kubelet, claims, form)
        if form.blocked:
            _beside_block(figures, node, claims)


def _claims(node: MpsNode) -> _Claims:
    return _Claims(
        first=node.shares(_FIRST, 1)[0],
        whole=node.whole(_WHOLE),
        further=node.shares(_SHARED, 1 + _FURTHER),
        others=[node.shares(gpu, 1 + _FURTHER) for gpu in _OTHERS],
        blocked=node.shares(_BLOCKED, _WAITING),
    )


def _first_shares(
    figures: Figures, kubelet: Kubelet, daemon: BareDaemon, claims: _Claims, form: Form
) -> None:
    _cycle(kubelet, claims.first)
    for _ in range(form.rounds):
        for _ in range(form.first_shares):
            for variant, (start, end) in (
                (FLOOR, (daemon.start(), daemon.quit())),
                (GPUSLICE, _cycle(kubelet, claims.first)),
            ):
                figures.sample("prepare-mps-first", variant, [start])
                figures.sample("unprepare-mps-first", variant, [end])
        figures.end_round()


def _further_shares(figures: Figures, kubelet: Kubelet, claims: _Claims, form: Form) -> None:
    """Whole GPUs and further shares turn and turn about, with one call in flight."""
    stands, *further = claims.further
    kubelet.prepare([stands])
    for _ in range(form.rounds):
        for number in range(form.blocks * form.cycles[1]):
            for name, claim in (("whole", claims.whole), ("further", further[number % _FURTHER])):
                prepared, unprepared = _cycle(kubelet, claim)
                figures.sample(f"prepare-mps-{name}", GPUSLICE, [prepared])
                figures.sample(f"unprepare-mps-{name}", GPUSLICE, [unprepared])
        figures.end_round()
    kubelet.unprepare([stands])


def _beside_block(figures: Figures, node: MpsNode, claims: _Claims) -> None:
    """Further shares of other GPUs, one call for each, while calls for one GPU wait and not."""
    kubelet = node.driver.kubelet
    for stands, *_ in claims.others:
        kubelet.prepare([stands])

    def rounds(metric: str, count: int, seconds: float) -> None:
        for _ in range(count):
            _churn(figures, metric, kubelet, claims, seconds)
            figures.end_round()

    rounds("prepare-mps-free", _ROUNDS // 2, _FREE_ROUND_S)
    node.block(_BLOCKED, _BLOCK_S)
    started = perf_counter()
    with ThreadPoolExecutor(_WAITING) as pool:
        waiting = [pool.submit(kubelet.prepare, [claim]) for claim in claims.blocked]
        rounds("prepare-mps-blocked", _ROUNDS, _BLOCKED_ROUND_S)
        assert not any(each.done() for each in waiting), "the GPU was not blocked all the time"
        for each in waiting:
            each.result()
        assert perf_counter() >= started + _BLOCK_S, "the GPU was not blocked"
    rounds("prepare-mps-free", _ROUNDS - _ROUNDS // 2, _FREE_ROUND_S)
    for claim in (*claims.blocked, *(stands for stands, *_ in claims.others)):
        kubelet.unprepare([claim])


def _churn(
    figures: Figures, metric: str, kubelet: Kubelet, claims: _Claims, seconds: float
) -> None:
    end = perf_counter() + seconds

    def work(own: Sequence[dra.Claim]) -> list[float]:
        prepares: list[float] = []
        while perf_counter() < end:
            prepares.append(_cycle(kubelet, own[1 + len(prepares) % _FURTHER])[0])
        return prepares

    with ThreadPoolExecutor(len(claims.others)) as pool:
        for prepares in pool.map(work, claims.others):
            figures.sample(metric, GPUSLICE, prepares)


def _cycle(kubelet: Kubelet, claim: dra.Claim) -> tuple[float, float]:
    return kubelet.prepare([claim]), kubelet.unprepare([claim])
