"""Selectors in CEL: what is true, what is false, and what cannot be said."""

from __future__ import annotations

from decimal import Decimal

import pytest

from dra_driver.model.pool import Version
from dra_driver.plan.allocate_values import AllocationError, DeviceId, Offer, OfferedCapacity
from dra_driver.sim.cel import CelSelectors

GPU = Offer(
    id=DeviceId("gpuslice.io", "node-a", "gpu-0"),
    attributes={
        "type": "gpu",
        "index": 3,
        "burstAllowed": True,
        "driverVersion": Version("570.133.20"),
        "resource.kubernetes.io/pcieRoot": "pci0000:16",
    },
    capacity={"memory": OfferedCapacity(value=Decimal(80 << 30))},
    shareable=True,
)
A = 'device.attributes["gpuslice.io"]'
C = 'device.capacity["gpuslice.io"]'


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpuslice.io"',
        "device.allowMultipleAllocations",
        f'{A}.type == "gpu"',
        f'{A}["type"] == "gpu"',
        f"{A}.index > 2 && {A}.index <= 3",
        f"{A}.index == 3.0",
        f"{A}.burstAllowed",
        'device.attributes["resource.kubernetes.io"].pcieRoot.startsWith("pci")',
        f'"type" in {A}',
        f"has({A}.type)",
        f"{A}.index in [1, 3]",
        f'{A}.type.matches("^g.u$")',
        f'{A}.type.upperAscii() == "GPU"',
        f'["gpu", "slot"].exists(kind, kind == {A}.type)',
        f'{C}.memory.compareTo(quantity("80Gi")) == 0',
        f'{C}.memory.isGreaterThan(quantity("79Gi"))',
        f'{C}.memory.isLessThan(quantity("81G")) == false',
        f'{C}.memory == quantity("81920Mi")',
        f'sign({C}.memory) == 1 && sign(quantity("0")) == 0',
        f'{A}.driverVersion.compareTo(semver("570.133.20")) == 0',
        f'{A}.driverVersion.isGreaterThan(semver("570.133.20-rc.1"))',
        f'{A}.driverVersion.isLessThan(semver("570.133.100"))',
        f"{A}.driverVersion.major() == 570",
        'isQuantity("6Gi") && !isQuantity("six") && isSemver("1.2.3") && !isSemver("1.2")',
        f'{A}.type == "slot" ? false : true',
        f'{A}.type == "gpu" || {A}.nothing == "x"',
    ],
)
def test_selector_is_true(expression: str) -> None:
    assert CelSelectors()(expression, GPU) is True


@pytest.mark.parametrize(
    "expression",
    [
        f'{A}.type == "slot"',
        f"{A}.type == 5",
        f"has({A}.nothing)",
        'has(device.attributes["other"].type)',
        '"type" in device.attributes["other"]',
        f'"memory" in {A}',
        f'{A}.type == "slot" && {A}.nothing == "x"',
    ],
)
def test_selector_is_false(expression: str) -> None:
    assert CelSelectors()(expression, GPU) is False


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (f'{A}.nothing == "x"', "nothing"),
        ('device.attributes["other"].type == "x"', "type"),
        (f"{A}.type", "no bool"),
        ("1", "no bool"),
        (f'{A}.?type.orValue("") == "gpu"', "cannot read"),
        ("this is no CEL", "cannot read"),
        ("true || nonsense", "no name 'nonsense'"),
        ("true || device.typo", "no field of device 'typo'"),
        ('true || device["driver"] == "x"', "no map"),
        ("true || nonsense()", "no function 'nonsense'"),
        (f"true || {A}.type.nonsense()", "no function 'nonsense'"),
        (f"cel.bind(a, {A}, a.type == 'gpu')", "no function 'bind'"),
        (f"!has({A}.type.nothing)", "has"),
        (f"{C}.memory > 5", "overload"),
        (f'{C}.memory.compareTo("5") == 0', "quantities"),
        (f"{C}.memory == 5", "overload"),
        (f'{C}.memory.compareTo(quantity("many")) == 0', "quantity"),
        (f'{A}.driverVersion.isGreaterThan(semver("570"))', "semver"),
        (f"{A}.type in {A}.type", "in"),
        (f"{C}.memory.sign() == 1", "sign"),
    ],
)
def test_selector_is_an_error_when_it_cannot_be_evaluated(expression: str, text: str) -> None:
    with pytest.raises(AllocationError, match="CEL") as caught:
        CelSelectors()(expression, GPU)
    assert expression in str(caught.value)
    causes = f"{caught.value} {caught.value.__cause__!r}"
    assert text in causes
