"""Random cases; a case is a function of seed, number and target alone."""

from __future__ import annotations

from random import Random

from tests.scheduler.claims import random_claims
from tests.scheduler.pools import other_pool, published_pool
from tests.scheduler.values import Case, Json, PodCase, Target, node_name

_PODS_MAX = 6
_OTHERS = 0.25
"""How many cases have a pool that this driver would not publish."""


def random_case(seed: int, number: int, target: Target) -> Case:
    """Give a case."""
    random = Random(f"{seed} {number} {target}")
    published = random.random() >= _OTHERS
    make = published_pool if published else other_pool
    slices = make(random, target, node=node_name(number))
    return Case(
        number=number,
        published=published,
        slices=slices,
        pods=_pods(random, target, slices),
    )


def _pods(random: Random, target: Target, slices: tuple[Json, ...]) -> tuple[PodCase, ...]:
    pods: list[PodCase] = []
    running: list[int] = []
    for number in range(random.randint(2, _PODS_MAX)):
        ends = random.sample(running, 1) if running and random.random() < 0.2 else []
        running = [each for each in running if each not in ends] + [number]
        # Some pods come in several copies, as tenants do: the same claims fill a node up.
        copies = bool(pods) and random.random() < 0.35
        claims = pods[-1].claims if copies else random_claims(random, target, slices)
        pods.append(PodCase(claims=claims, after=tuple(ends)))
    return tuple(pods)
