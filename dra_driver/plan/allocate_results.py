"""A solution as the JSON of `status.allocation`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from dra_driver.model.quantity import format_bytes
from dra_driver.plan.allocate_state import Chosen
from dra_driver.plan.allocate_values import (
    DeviceRequest,
    MainRequest,
    OfferedClass,
    PendingClaim,
    SchedulerRules,
)

_BINARY_FROM = 1024
_FRACTIONS = (("m", 10**3), ("u", 10**6), ("n", 10**9))


def allocation_json(
    claim: PendingClaim,
    chosen: tuple[Chosen, ...],
    choices: tuple[int, ...],
    *,
    classes: Mapping[str, OfferedClass],
    node: str,
    rules: SchedulerRules,
    share_ids: Iterator[str],
) -> dict[str, Any]:
    """Give a claim's allocation; `choices` are indices of what was taken, per request."""
    taken = tuple(
        request.choices[choice] for request, choice in zip(claim.requests, choices, strict=True)
    )
    devices: dict[str, Any] = {"results": [_result(each, rules, share_ids) for each in chosen]}
    config = [*_class_configs(taken, classes), *_claim_configs(claim, taken, rules)]
    if not rules.first:
        config = [_spare(each, claim.requests, taken) for each in config]
    if config:
        devices["config"] = [_without_empty(each) for each in config]
    body: dict[str, Any] = {"devices": devices}
    if any(each.node for each in chosen):
        body["nodeSelector"] = _on_node(node)
    return body


def format_amount(amount: Decimal) -> str:
    """Spell an amount: whole numbers with a binary suffix where one is exact, others exactly too.

    A quantity of the API server has no parts below the billionth.
    """
    if amount == amount.to_integral_value():
        whole = int(amount)
        return format_bytes(whole) if whole >= _BINARY_FROM else str(whole)
    exact = (each for each in _FRACTIONS if amount * each[1] % 1 == 0)
    suffix, parts = next(exact, _FRACTIONS[-1])
    return f"{amount * parts:.0f}{suffix}"


def _result(chosen: Chosen, rules: SchedulerRules, share_ids: Iterator[str]) -> dict[str, Any]:
    device = chosen.offer.id
    body: dict[str, Any] = {
        "request": chosen.request.full_name,
        "driver": device.driver,
        "pool": device.pool,
        "device": device.device,
    }
    if chosen.request.admin_access:
        body["adminAccess"] = True
    if chosen.request.tolerations_json and not rules.first:
        body["tolerations"] = [dict(each) for each in chosen.request.tolerations_json]
    if chosen.shared:
        body["shareID"] = next(share_ids)
    if chosen.amounts:
        body["consumedCapacity"] = {name: format_amount(amount) for name, amount in chosen.amounts}
    return body


def _class_configs(
    taken: tuple[DeviceRequest, ...], classes: Mapping[str, OfferedClass]
) -> list[dict[str, Any]]:
    """Each class once, with all requests that use it."""
    users: dict[str, list[str]] = {}
    for request in taken:
        users.setdefault(request.device_class, []).append(request.full_name)
    return [
        {"source": "FromClass", "requests": list(requests), **config.body}
        for name, requests in users.items()
        for config in classes[name].configs
    ]


def _claim_configs(
    claim: PendingClaim, taken: tuple[DeviceRequest, ...], rules: SchedulerRules
) -> list[dict[str, Any]]:
    """Those that are about what was taken; 1.34 repeats one for each request that it is about."""
    found = []
    for config in claim.configs:
        body = {"source": "FromClaim", "requests": list(config.requests), **config.body}
        about = sum(
            bool({request.name, choice.full_name} & set(config.requests))
            for request, choice in zip(claim.requests, taken, strict=True)
        )
        if not config.requests:
            about = 1
        found += [body] * (about if rules.first else min(about, 1))
    return found


def _spare(
    config: dict[str, Any], requests: tuple[MainRequest, ...], taken: tuple[DeviceRequest, ...]
) -> dict[str, Any]:
    """Leave requests out where they are all there are."""
    named = set(config["requests"])
    everything = all(
        {request.name, choice.full_name} & named
        for request, choice in zip(requests, taken, strict=True)
    )
    return {**config, "requests": []} if everything else config


def _without_empty(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if value}


def _on_node(node: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}
