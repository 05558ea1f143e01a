"""Wire form of version v1alpha1.

The description of a field says what is supported: error texts quote it.
Validation runs on JSON text in strict mode, so "50" is no number, 1 is no true and 50.0 is no 50.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, StrictStr
from pydantic.alias_generators import to_camel

from dra_driver.model.config import GpuConfig, NumaAffinity, SliceConfig
from dra_driver.model.device import TIER_ORDER, Tier
from dra_driver.model.quantity import MIB, parse_quantity
from dra_driver.model.share import CheckpointPolicy, OnExceed, Qos, Sharing, TimeSlice

_LARGEST_BYTES = 1 << 63


def _one_of(values: Any) -> str:
    *others, last = (value.value for value in values)
    return f"{', '.join(others)} or {last}"


def _memory_mib(value: int | str) -> int:
    """Whole MiB of a quantity, rounded down; below one there is nothing to enforce."""
    try:
        amount = parse_quantity(value) if isinstance(value, str) else Decimal(value)
    except ArithmeticError as e:
        raise ValueError("the exponent is out of range") from e
    if not MIB <= amount < _LARGEST_BYTES:
        raise ValueError("out of range")
    return int(amount) // MIB


MemoryMib = Annotated[StrictInt | StrictStr, AfterValidator(_memory_mib)]


class _Kind(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


class SliceConfigV1Alpha1(_Kind):
    sharing: Sharing | None = Field(None, description=_one_of(Sharing))
    time_slice: TimeSlice | None = Field(None, description=_one_of(TimeSlice))
    max_compute: StrictInt | None = Field(
        None, ge=1, le=100, description="a whole number from 1 to 100, without quotes"
    )
    max_memory: MemoryMib | None = Field(
        None, description="a quantity of at least 1Mi, such as 6Gi, 1536Mi or 4G"
    )
    qos: Qos | None = Field(None, description=_one_of(Qos))
    minimum_tier: Tier | None = Field(None, description=_one_of(TIER_ORDER))
    on_exceed: OnExceed = Field(OnExceed.WARN, description=_one_of(OnExceed))
    numa_affinity: NumaAffinity = Field(NumaAffinity.NONE, description=_one_of(NumaAffinity))
    checkpoint: CheckpointPolicy = Field(
        CheckpointPolicy.NONE, description=_one_of(CheckpointPolicy)
    )

    def value(self) -> SliceConfig:
        return SliceConfig(
            sharing=self.sharing,
            time_slice=self.time_slice,
            max_compute_percent=self.max_compute,
            max_memory_mib=None if self.max_memory is None else int(self.max_memory),
            qos=self.qos,
            minimum_tier=self.minimum_tier,
            on_exceed=self.on_exceed,
            numa_affinity=self.numa_affinity,
            checkpoint=self.checkpoint,
        )


class GpuConfigV1Alpha1(_Kind):
    time_slice: TimeSlice | None = Field(None, description=_one_of(TimeSlice))
    checkpoint: CheckpointPolicy = Field(
        CheckpointPolicy.NONE, description=_one_of(CheckpointPolicy)
    )
    restore_from: StrictStr | None = Field(
        None, min_length=1, max_length=253, description="the identity of a checkpoint operation"
    )

    def value(self) -> GpuConfig:
        return GpuConfig(
            time_slice=self.time_slice,
            checkpoint=self.checkpoint,
            restore_from=self.restore_from,
        )
