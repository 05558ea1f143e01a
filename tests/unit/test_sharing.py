from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dra_driver.errors import ClaimError, ClaimRejected, NotReady, Reason
from dra_driver.model.device import Tier
from dra_driver.model.record import GpuUse, Use
from dra_driver.model.share import GpuShare, OnExceed, Qos, Sharing
from tests.builders import claim_json, claim_uid, gpu, inventory, share_result, uuid
from tests.unit.planning import (
    OPTIONS,
    USABLE_MIB,
    ability,
    config,
    device,
    only_share,
    parameters,
    plan,
    share_claim,
)

WHO = "claim team-a/claim-1, request gpu"
ENTRY = "claim team-a/claim-1: claim config 0"


def refusal(obj: dict[str, Any], **changes: Any) -> ClaimError:
    with pytest.raises(ClaimError) as caught:
        plan(obj, **changes)
    return caught.value


def configured(**fields: Any) -> list[dict[str, Any]]:
    return [config(parameters(**fields))]


def test_share_is_what_was_consumed_when_both_amounts_are_asked() -> None:
    made = plan(share_claim(compute="25", memory="6Gi"))
    assert only_share(made) == GpuShare(
        id=f"{claim_uid(1)}-0",
        gpu=uuid(0),
        sharing=Sharing.MPS,
        compute_percent=25,
        memory_mib=6144,
        qos=Qos.GUARANTEED,
    )
    assert made.record.uses == (
        GpuUse(
            gpu=uuid(0),
            use=Use.SHARED,
            device=device(),
            share_id="00000001-0000-4000-a000-000000000001",
            compute_percent=25,
            memory_mib=6144,
            setting="MPS",
        ),
    )
    assert made.warnings == ()


def test_share_may_use_free_compute_when_only_memory_is_asked() -> None:
    made = plan(share_claim(compute=None))
    share = only_share(made)
    assert (share.compute_percent, share.qos, share.priority) == (100, Qos.BURSTABLE, 0)
    assert made.record.uses[0].compute_percent == 1
    assert made.warnings == ()


def test_share_holds_all_memory_and_warns_when_only_compute_is_asked() -> None:
    made = plan(share_claim(memory=None))
    assert only_share(made).memory_mib == USABLE_MIB
    assert made.record.uses[0].memory_mib == USABLE_MIB
    assert made.warnings == (
        (
            f"{WHO}: asks for compute but for no memory, so it holds all memory of GPU {uuid(0)} and no"
            " other share fits beside it: name memory in capacity.requests"
        ),
    )


def test_gpu_is_whole_when_no_amount_is_asked() -> None:
    made = plan(share_claim(compute=None, memory=None))
    (use,) = made.record.uses
    assert (use.use, use.compute_percent, use.memory_mib) == (Use.EXCLUSIVE, 100, USABLE_MIB)
    assert use.share_id == "00000001-0000-4000-a000-000000000001"


@pytest.mark.parametrize(
    ("compute", "qos", "ceiling", "priority"),
    [
        ("25", "Guaranteed", 25, 0),
        ("25", "Burstable", 100, 0),
        ("25", "BestEffort", 100, 1),
        (None, "Guaranteed", 1, 0),
    ],
)
def test_share_has_ceiling_and_priority_of_its_qos(
    compute: str | None, qos: str, ceiling: int, priority: int
) -> None:
    share = only_share(plan(share_claim(compute=compute, configs=configured(qos=qos))))
    assert (share.compute_percent, share.priority, share.qos) == (ceiling, priority, qos)


def test_share_warns_when_guaranteed_compute_is_one_percent_by_default() -> None:
    made = plan(share_claim(compute=None, configs=configured(qos="Guaranteed")))
    assert made.warnings == (
        (
            f"{WHO}: asks for memory but for no compute, so with qos Guaranteed it may use 1 % of GPU "
            f"{uuid(0)}: name compute in capacity.requests, or use qos Burstable"
        ),
    )


@pytest.mark.parametrize(
    ("fields", "compute", "memory"),
    [
        ({"maxCompute": 10}, 10, 6144),
        ({"maxCompute": 60}, 25, 6144),
        ({"maxCompute": 60, "qos": "Burstable"}, 60, 6144),
        ({"maxMemory": "1G"}, 25, 953),
        ({"maxMemory": "8Gi"}, 25, 6144),
    ],
)
def test_share_is_lowered_and_never_raised_when_a_config_has_ceilings(
    fields: dict[str, Any], compute: int, memory: int
) -> None:
    made = plan(share_claim(configs=configured(**fields)))
    assert (only_share(made).compute_percent, only_share(made).memory_mib) == (compute, memory)
    held = made.record.uses[0]
    assert (held.compute_percent, held.memory_mib) == (25, 6144)


def test_share_passes_on_what_to_do_when_memory_is_exceeded() -> None:
    made = plan(share_claim(configs=configured(onExceed="Terminate")))
    assert only_share(made).on_exceed is OnExceed.TERMINATE


@pytest.mark.parametrize(("memory", "mib"), [("10M", 9), ("1Mi", 1), ("1048577", 1)])
def test_share_memory_is_rounded_down_to_mib(memory: str, mib: int) -> None:
    assert only_share(plan(share_claim(memory=memory))).memory_mib == mib


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("memory", "1M", "is 1000000, but 1Mi to the GPU's total of 81559Mi"),
        ("memory", "0", "is 0, but 1Mi"),
        ("memory", "82Gi", "is 88046829568, but"),
        ("compute", "0", "is 0, but 1 to 100 (percent)"),
        ("compute", "101", "is 101, but"),
        ("compute", "500m", "is 0.5, but"),
        ("compute", None, "is missing, but"),
        ("memory", None, "is missing, but"),
    ],
)
def test_share_is_rejected_when_an_amount_cannot_be_enforced(
    name: str, amount: str | None, text: str
) -> None:
    result = share_result(device())
    del result["consumedCapacity"][name]
    result["consumedCapacity"] |= {} if amount is None else {name: amount}
    error = refusal(claim_json(results=[result]))
    assert isinstance(error, ClaimRejected)
    assert str(error).startswith(f"{WHO}, device {device()}: consumedCapacity[{name}]")
    assert text in str(error)
    assert str(error).endswith(f"capacity.requests[{name}] in that range")


def test_share_gets_what_there_is_and_warns_when_the_gpu_has_less_than_at_allocation() -> None:
    made = plan(share_claim(memory="81000Mi"))
    assert only_share(made).memory_mib == USABLE_MIB
    assert f"counts 81000 MiB, but GPU {uuid(0)} has only {USABLE_MIB} MiB" in made.warnings[0]


def test_share_is_rejected_when_the_gpu_does_not_tell_its_memory() -> None:
    error = refusal(share_claim(), node=inventory(gpu(0, memory_total_bytes=None)))
    assert "does not tell its memory, so a part of it cannot be limited: ask for a whole" in str(
        error
    )


def test_share_is_time_sliced_when_mps_cannot_be_had() -> None:
    made = plan(share_claim(), abilities=(ability(tier=Tier.NONE, mps_multi_user=False),))
    assert only_share(made).sharing is Sharing.TIME_SLICING
    assert made.record.uses[0].setting == "TimeSlicing"
    assert "sharing TimeSlicing, tier none" in made.notes[0]


@pytest.mark.parametrize("abilities", [(ability(tier=None, reason="Maxwell"),), ()])
def test_share_is_not_ready_when_the_gpu_cannot_be_shared_now(abilities: Any) -> None:
    error = refusal(share_claim(), abilities=abilities)
    assert isinstance(error, NotReady)
    assert error.reason is Reason.NOT_SUPPORTED
    why = abilities[0].reason if abilities else "nothing is known about it yet"
    assert f"{WHO}: GPU {uuid(0)} cannot be shared now ({why}): ask for a whole GPU" in str(error)


@pytest.mark.parametrize(
    ("fields", "tier", "text"),
    [
        (
            {"sharing": "MPS"},
            Tier.NONE,
            f"field sharing: MPS cannot be had on GPU {uuid(0)} (old): use TimeSlicing",
        ),
        (
            {"minimumTier": "standard"},
            Tier.COOPERATIVE,
            (
                f"field minimumTier: standard is more than sharing MPS on GPU {uuid(0)} enforces, which"
                " is cooperative (old): lower it, or select the GPU's attribute `tier` in the request"
            ),
        ),
        (
            {"minimumTier": "cooperative", "sharing": "TimeSlicing"},
            Tier.STANDARD,
            "cooperative is more than sharing TimeSlicing on",
        ),
        ({"numaAffinity": "Required"}, Tier.STANDARD, "field numaAffinity: Required is not"),
        ({"checkpoint": "Required"}, Tier.STANDARD, "field checkpoint: Required is not supported"),
    ],
)
def test_share_is_rejected_when_a_field_cannot_be_kept(
    fields: dict[str, Any], tier: Tier, text: str
) -> None:
    error = refusal(
        share_claim(configs=configured(**fields)), abilities=(ability(tier=tier, reason="old"),)
    )
    assert isinstance(error, ClaimRejected)
    assert str(error).startswith(f"{ENTRY}: ")
    assert text in str(error)


@pytest.mark.parametrize("tier", [Tier.COOPERATIVE, Tier.STANDARD])
def test_share_is_planned_when_the_minimum_tier_is_met(tier: Tier) -> None:
    obj = share_claim(configs=configured(minimumTier="cooperative"))
    assert only_share(plan(obj, abilities=(ability(tier=tier),))).sharing is Sharing.MPS


def test_share_is_rejected_naming_the_flag_when_a_server_serves_one_uid_only() -> None:
    one_uid = (ability(mps_multi_user=False),)
    error = refusal(share_claim(), abilities=one_uid)
    assert isinstance(error, ClaimRejected)
    assert "serves one UID only: run the plugin with --mps-single-uid N" in str(error)
    promised = replace(OPTIONS, mps_single_uid=0)
    assert plan(share_claim(), abilities=one_uid, options=promised).record.steps
    sliced = share_claim(configs=configured(sharing="TimeSlicing"))
    assert only_share(plan(sliced, abilities=one_uid)).sharing is Sharing.TIME_SLICING


@pytest.mark.parametrize(
    "changes",
    [
        {"options": replace(OPTIONS, allow_burst=False)},
        {"abilities": (ability(burst_allowed=False),)},
    ],
)
def test_share_is_rejected_when_it_would_burst_where_that_is_not_allowed(changes: Any) -> None:
    error = refusal(share_claim(compute=None), **changes)
    assert isinstance(error, ClaimRejected)
    assert str(error) == (
        f"{WHO}: asks for memory but for no compute, so it would use free compute, which GPU "
        f"{uuid(0)} does not allow (burstAllowed is false): name compute in capacity.requests"
    )
    error = refusal(share_claim(configs=configured(qos="BestEffort")), **changes)
    assert str(error) == (
        f"{ENTRY}: field qos: BestEffort lets a share use free compute, which GPU {uuid(0)} does "
        "not allow (burstAllowed is false): write Guaranteed and name compute in capacity.requests"
    )
    assert only_share(plan(share_claim(), **changes)).compute_percent == 25
