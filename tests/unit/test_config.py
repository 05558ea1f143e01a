from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_api.config import API_VERSION, ConfigError, decode
from dra_driver.model.config import GpuConfig, NumaAffinity, SliceConfig
from dra_driver.model.device import Tier
from dra_driver.model.share import CheckpointPolicy, OnExceed, Qos, Sharing, TimeSlice
from tests.unit.planning import parameters

PERCENT = "write a whole number from 1 to 100, without quotes"
MEMORY = "write a quantity of at least 1Mi, such as 6Gi, 1536Mi or 4G"
FIELDS = (
    "supported are sharing, timeSlice, maxCompute, maxMemory, qos, minimumTier, onExceed, "
    "numaAffinity, checkpoint"
)


def refusal(values: Any, *, strict: bool = True) -> str:
    with pytest.raises(ConfigError) as caught:
        decode(values, path="claim config 2", strict=strict)
    return str(caught.value)


def test_decode_gives_defaults_when_nothing_is_said() -> None:
    assert decode(parameters(), path="x") == SliceConfig()
    assert decode(parameters("GpuConfig"), path="x") == GpuConfig()


def test_decode_gives_every_field_when_all_are_said() -> None:
    values = parameters(
        sharing="MPS",
        maxCompute=100,
        maxMemory="2Gi",
        qos="BestEffort",
        minimumTier="standard",
        onExceed="Terminate",
        numaAffinity="Preferred",
        checkpoint="BestEffort",
    )
    assert decode(values, path="x") == SliceConfig(
        sharing=Sharing.MPS,
        max_compute_percent=100,
        max_memory_mib=2048,
        qos=Qos.BEST_EFFORT,
        minimum_tier=Tier.STANDARD,
        on_exceed=OnExceed.TERMINATE,
        numa_affinity=NumaAffinity.PREFERRED,
        checkpoint=CheckpointPolicy.BEST_EFFORT,
    )
    values = parameters(sharing="TimeSlicing", timeSlice="Short")
    assert decode(values, path="x") == SliceConfig(
        sharing=Sharing.TIME_SLICING, time_slice=TimeSlice.SHORT
    )
    values = parameters("GpuConfig", timeSlice="Long", checkpoint="None", restoreFrom="op-1")
    assert decode(values, path="x") == GpuConfig(time_slice=TimeSlice.LONG, restore_from="op-1")


def test_decode_takes_the_smallest_values() -> None:
    assert decode(parameters(maxCompute=1), path="x") == SliceConfig(max_compute_percent=1)
    assert decode(parameters("GpuConfig", restoreFrom="1"), path="x") == GpuConfig(restore_from="1")


@pytest.mark.parametrize(
    ("memory", "mib"),
    [
        ("2Gi", 2048),
        ("10Mi", 10),
        ("10M", 9),
        ("1G", 953),
        ("1Mi", 1),
        (1 << 30, 1024),
        ("1.5Gi", 1536),
        ("1e9", 953),
    ],
)
def test_decode_rounds_memory_down_to_mib_when_spelled_in_any_unit(memory: Any, mib: int) -> None:
    assert decode(parameters(maxMemory=memory), path="x") == SliceConfig(max_memory_mib=mib)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        *(
            ({"maxCompute": value}, f"field maxCompute: {shown} is not supported: {PERCENT}")
            for value, shown in (
                (-1, "-1"),
                (0, "0"),
                (101, "101"),
                (50.5, "50.5"),
                (50.0, "50.0"),
                ("50", '"50"'),
                (True, "true"),
                ([50], "[50]"),
                ({}, "{}"),
                (10**100, "1" + "0" * 79 + "…"),
            )
        ),
        (
            {"maxCompute": None},
            "field maxCompute: null is not supported: leave the field out or " + PERCENT,
        ),
        *(
            ({"maxMemory": value}, f"field maxMemory: {shown} is not supported: {MEMORY}")
            for value, shown in (
                ("1M", '"1M"'),
                ("0", '"0"'),
                ("-2Gi", '"-2Gi"'),
                ("2GiB", '"2GiB"'),
                ("", '""'),
                ("1e99", '"1e99"'),
                ("1e99999999", '"1e99999999"'),
                (True, "true"),
                (2.5, "2.5"),
                (1000, "1000"),
                (1 << 70, str(1 << 70)),
            )
        ),
        ({"sharing": "mps"}, 'field sharing: "mps" is not supported: write MPS or TimeSlicing'),
        (
            {"sharing": {"strategy": "MPS"}},
            'field sharing: {"strategy": "MPS"} is not supported: write MPS or TimeSlicing',
        ),
        (
            {"qos": "burstable"},
            'field qos: "burstable" is not supported: write Guaranteed, Burstable or BestEffort',
        ),
        (
            {"minimumTier": "strict"},
            'field minimumTier: "strict" is not supported: write none, cooperative or standard',
        ),
        ({"onExceed": 1}, "field onExceed: 1 is not supported: write Warn or Terminate"),
        (
            {"numaAffinity": False},
            "field numaAffinity: false is not supported: write None, Preferred or Required",
        ),
        (
            {"checkpoint": "Yes"},
            'field checkpoint: "Yes" is not supported: write None, BestEffort or Required',
        ),
        ({"strategy": "MPS"}, f'field strategy: unknown, its value is "MPS": {FIELDS}'),
        (
            {"MaxCompute": 5},
            f"field MaxCompute: unknown (did you mean maxCompute?), its value is 5: {FIELDS}",
        ),
        (
            {"max_compute": 5},
            f"field max_compute: unknown (did you mean maxCompute?), its value is 5: {FIELDS}",
        ),
        ({"bogus": None}, f"field bogus: unknown, its value is null: {FIELDS}"),
        (
            {"sharing": "TimeSlicing", "timeSlice": "Huge"},
            'field timeSlice: "Huge" is not supported: write Default, Short, Medium or Long',
        ),
        *(
            (
                {"timeSlice": "Long"} | beside,
                (
                    f'field timeSlice: "Long" cannot be had with {told}: write sharing TimeSlicing '
                    "beside it or leave it out"
                ),
            )
            for beside, told in (({"sharing": "MPS"}, "sharing MPS"), ({}, "no sharing"))
        ),
        (
            {"sharing": "TimeSlicing", "maxCompute": 50},
            (
                "field maxCompute: 50 cannot be enforced with sharing TimeSlicing: leave it out or use"
                " sharing MPS"
            ),
        ),
        (
            {"sharing": "TimeSlicing", "qos": "Guaranteed"},
            (
                'field qos: "Guaranteed" cannot be enforced with sharing TimeSlicing: leave it out or '
                "use sharing MPS"
            ),
        ),
    ],
)
def test_decode_names_field_value_and_way_out_when_a_field_is_bad(
    fields: dict[str, Any], text: str
) -> None:
    assert refusal(parameters(**fields)) == f"claim config 2: {text}"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"timeSlice": "Huge"},
            'field timeSlice: "Huge" is not supported: write Default, Short, Medium or Long',
        ),
        (
            {"restoreFrom": ""},
            'field restoreFrom: "" is not supported: write the identity of a checkpoint operation',
        ),
        (
            {"maxCompute": 50},
            (
                "field maxCompute: unknown, its value is 50: supported are timeSlice, checkpoint, "
                "restoreFrom"
            ),
        ),
    ],
)
def test_decode_refuses_when_a_field_of_gpu_config_is_bad(
    fields: dict[str, Any], text: str
) -> None:
    assert refusal(parameters("GpuConfig", **fields)) == f"claim config 2: {text}"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "no apiVersion and no kind"),
        ({"driverConfig": {"driver": "vfio-pci"}}, "no apiVersion and no kind"),
        (
            {"apiVersion": "gpu.example.test/v1alpha1", "kind": "GpuClaimParameters"},
            'apiVersion "gpu.example.test/v1alpha1" and kind "GpuClaimParameters"',
        ),
        (
            {"apiVersion": "config.gpuslice.io/v1beta1", "kind": "SliceConfig"},
            'apiVersion "config.gpuslice.io/v1beta1" and kind "SliceConfig"',
        ),
        (
            {"apiVersion": API_VERSION, "kind": "sliceConfig"},
            f'apiVersion "{API_VERSION}" and kind',
        ),
        ({"apiVersion": API_VERSION, "kind": ["SliceConfig"]}, 'kind ["SliceConfig"]'),
        ({"apiVersion": None, "kind": None}, "apiVersion null and kind null"),
    ],
)
def test_decode_tells_supported_kinds_when_the_shape_is_foreign(
    values: dict[str, Any], said: str
) -> None:
    text = refusal(values)
    assert text.startswith("claim config 2: ")
    assert said in text
    assert text.endswith(
        "write apiVersion config.gpuslice.io/v1alpha1 and kind GpuConfig or SliceConfig"
    )


def test_decode_tells_all_faults_when_there_are_several() -> None:
    text = refusal(parameters(maxCompute=0, qos="x", bogus=1))
    assert [text.count(name) for name in ("field maxCompute", "field qos", "field bogus")] == [
        1
    ] * 3


def test_decode_refuses_when_parameters_are_larger_than_the_api_allows() -> None:
    text = refusal(parameters(bogus="x" * 10240))
    assert "bytes are too large: at most 10240 bytes are supported" in text
    assert len(text) < 200


def test_decode_refuses_when_text_is_no_unicode() -> None:
    assert "plain Unicode" in refusal(parameters(qos="\ud800"))


def test_decode_leaves_unknown_fields_out_when_the_object_is_a_stored_one() -> None:
    values = parameters(maxCompute=5, ofTomorrow={"x": 1})
    assert decode(values, path="x", strict=False) == SliceConfig(max_compute_percent=5)
    assert "field maxCompute: 0" in refusal(parameters(maxCompute=0, ofTomorrow=1), strict=False)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
_NAMES = st.sampled_from(["sharing", "maxCompute", "maxMemory", "qos", "kind", "x"]) | st.text()


@given(st.dictionaries(_NAMES, _JSON, max_size=4))
def test_decode_gives_a_value_or_one_line_when_fed_any_json(fields: dict[str, Any]) -> None:
    try:
        text = str(decode(parameters() | fields, path="claim config 0"))
    except ConfigError as e:
        text = str(e)
    assert text.startswith(("claim config 0: ", "SliceConfig("))
    assert "\n" not in text
