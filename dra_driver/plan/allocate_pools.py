"""Which pools a node can be given devices from, in the scheduler's order.

Source: k8s.io/dynamic-resource-allocation v0.34.4 and v0.37.2, structured, GatherPools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dra_driver.plan.allocate_values import OfferedPool, OfferedSlice, SchedulerRules


def gather_pools(
    slices: Iterable[OfferedSlice], node: str, rules: SchedulerRules
) -> tuple[OfferedPool, ...]:
    """Pools with devices for a node, by driver and name; each of its newest generation.

    1.34 visits pools in no order at all and slices as they come; here pools are sorted for it too.
    """
    everything = tuple(slices)
    found: dict[tuple[str, str], list[OfferedSlice]] = {}
    for each in everything:
        if each.node in {"", node}:
            _add(found.setdefault((each.driver, each.pool), []), each)
    pools = (_pool(key, found[key], everything, rules) for key in sorted(found))
    return tuple(pool for pool in pools if pool is not None)


def _add(pool: list[OfferedSlice], each: OfferedSlice) -> None:
    if pool and each.generation < pool[0].generation:
        return
    if pool and each.generation > pool[0].generation:
        pool.clear()
    pool.append(each)


def _pool(
    key: tuple[str, str],
    slices: list[OfferedSlice],
    everything: tuple[OfferedSlice, ...],
    rules: SchedulerRules,
) -> OfferedPool | None:
    driver, name = key
    incomplete = len(slices) != slices[0].pool_slices
    if rules.first:
        return OfferedPool(
            driver=driver,
            name=name,
            slices=tuple(slices),
            incomplete=incomplete,
            invalid=_invalid(slices),
        )
    if incomplete:
        # Some of its slices may be there, for other nodes; or it is being replaced.
        others = [each for each in everything if (each.driver, each.pool) == key]
        generation = slices[0].generation
        if any(each.generation > generation for each in others):
            return None
        same = sum(each.generation == generation for each in others)
        if same != slices[0].pool_slices:
            return OfferedPool(driver=driver, name=name, incomplete=True)
    ordered = tuple(sorted(slices, key=lambda each: each.name))
    return OfferedPool(driver=driver, name=name, slices=ordered, invalid=_invalid(ordered))


def _invalid(slices: Iterable[OfferedSlice]) -> str:
    seen: set[str] = set()
    for device in _devices(slices):
        if device in seen:
            return f"duplicate device name {device}"
        seen.add(device)
    return ""


def _devices(slices: Iterable[OfferedSlice]) -> Iterator[str]:
    return (offer.id.device for each in slices for offer in each.offers)
