"""Random claims for a pool: what people ask for, and what they should not."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from dra_driver.plan.allocate_values import RESULTS_MAX
from tests.scheduler.values import DRIVER, Json, Target, devices_of

ANY_CLASS = f"any.{DRIVER}"
TUNED_CLASS = f"tuned.{DRIVER}"
_SHIPPED = ("slice", "gpu", "slice-10", "slice-25", "slice-50", "monitor")
_COMPUTE = ("1", "5", "5", "10", "10", "20", "25", "25", "33", "50", "500m", "12500m")
_COMPUTE_ODD = ("100", "101", "0", "60", "33.3", "1n", "-1")
_MEMORY = ("256Mi", "1Gi", "1Gi", "2Gi", "4Gi", "6Gi", "6000M", "1536Mi", "4G", "1e9", "1")
_MEMORY_ODD = ("15Gi", "40Gi", "79Gi", "200Gi", "1.5Gi", "0.1", "9E", "0")
_ODD_NAMES = ("none", "uuid", "productName", "resource.kubernetes.io/numaNode")
_OWN = f'device.attributes["{DRIVER}"]'
_SIZE = f'device.capacity["{DRIVER}"]'
_SELECTORS = (
    f'has({_OWN}.productName) && {_OWN}.productName != "blue"',
    f"{_OWN}.index < 3",
    f"{_OWN}.index in [0, 2, 3]",
    '"numaNode" in device.attributes["resource.kubernetes.io"]',
    'size(device.attributes["example.com"]) == 0',
    f'{_SIZE}.memory.compareTo(quantity("3Gi")) >= 0',
    f'{_SIZE}.memory.isLessThan(quantity("60Gi"))',
    f"has({_SIZE}.shares) ? {_SIZE}.shares.asInteger() > 1 : sign({_SIZE}.compute) == 1",
    f'["a", "b"].exists(x, x == {_OWN}.productName) || device.driver == "{DRIVER}"',
    f"{_OWN}.missing == 1 || true",
)
_SELECTORS_ODD = (
    f"{_OWN}.burstAllowed",
    f"!{_OWN}.mpsMultiUser || {_OWN}.index > 1",
    f'{_OWN}.productName.contains("H100")',
    f'{_OWN}.productName.lowerAscii().startsWith("tesla") || {_OWN}.smCount >= 100',
    f'{_OWN}.productName == "red"',
    f'{_OWN}.tier == "standard"',
    f'{_OWN}.architecture.matches("^Hop")',
    f'{_OWN}.cudaComputeCapability.isGreaterThan(semver("8.0.0"))',
    f'{_OWN}.driverVersion.compareTo(semver("580.0.0")) >= 0',
    f"{_OWN}.cudaDriverVersion.major() == 13",
    'device.attributes["resource.kubernetes.io"].numaNode == 0',
    'has(device.attributes["resource.kubernetes.io"].pcieRoot)',
    f"{_OWN}.missing == 1",
    f'{_SIZE}.compute.compareTo(quantity("25")) == 0',
)
_SHARED_ONLY = ("device.allowMultipleAllocations", "!device.allowMultipleAllocations")
_STEPS_MAX = 20_000


def classes() -> tuple[Json, ...]:
    """Give the specs, by name, of classes beside the shipped ones."""
    opaque = {"driver": DRIVER, "parameters": {"kind": "Some", "size": 3}}
    return (
        {"metadata": {"name": ANY_CLASS}, "spec": {}},
        {"metadata": {"name": TUNED_CLASS}, "spec": {"config": [{"opaque": opaque}] * 2}},
    )


def random_claims(random: Random, target: Target, slices: tuple[Json, ...]) -> tuple[Json, ...]:
    """Give the claims of a pod; searching for them ends in time, whatever is taken already."""
    while True:
        count = random.choice((1, 1, 1, 1, 2, 3))
        claims = tuple(_Maker(random, target, slices).claim() for _ in range(count))
        if _steps(claims, slices) <= _STEPS_MAX:
            return claims


def _steps(claims: tuple[Json, ...], slices: tuple[Json, ...]) -> int:
    """How many ways a search through all possibilities has, at most."""
    steps = 1
    for request in (each for claim in claims for each in claim["requests"]):
        ways = request.get("firstAvailable") or [request["exactly"]]
        steps *= sum(_ways(each, slices) for each in ways)
    return steps


def _ways(request: Json, slices: tuple[Json, ...]) -> int:
    everything = request["deviceClassName"] in {ANY_CLASS, TUNED_CLASS}
    size = sum(everything or not each["name"].startswith("pad-") for each in devices_of(slices))
    count = request.get("count", 1)
    # More than a claim can be given is refused before a search.
    return max(size, 1) ** count if count <= RESULTS_MAX else 1


def _names(request: Json) -> Iterator[str]:
    """How constraints and configs can name a request."""
    yield request["name"]
    for way in request.get("firstAvailable", ()):
        yield f"{request['name']}/{way['name']}"


def _classes_of(device: Json) -> Iterator[str]:
    """Which of the shipped classes select a device."""
    kind = device["attributes"]["type"]["string"]
    yield f"slice-{device['capacity']['compute']['value']}" if kind == "slot" else kind
    if kind == "gpu" and device["attributes"]["sharing"]["string"] == "Shared":
        yield "slice"


class _Maker:
    def __init__(self, random: Random, target: Target, slices: tuple[Json, ...]) -> None:
        self._random = random
        self._target = target
        devices = tuple(each for each in devices_of(slices) if not each["name"].startswith("pad-"))
        self._useful = tuple(sorted({name for each in devices for name in _classes_of(each)}))
        self._attributes = tuple(sorted({name for each in devices for name in each["attributes"]}))
        self._size = len(devices)
        # 1.34 goes on with a wrong number; where no pads catch it, nobody should follow.
        padded = len(devices) < sum(1 for _ in devices_of(slices))
        self._huge = () if target.rules.first and not padded else ("10E", "8Ei")

    def claim(self) -> Json:
        count = self._random.choice((1, 1, 1, 1, 2, 3))
        requests = [self._request(f"req-{number}") for number in range(count)]
        body: Json = {"requests": requests}
        # Alternatives can be named as well.
        names = [self._random.choice(tuple(_names(each))) for each in requests]
        constraints = [self._constraint(names) for _ in range(2) if self._often(0.12)]
        if constraints:
            body["constraints"] = constraints
        if self._often(0.1):
            body["config"] = [self._config(names) for _ in range(self._random.randint(1, 2))]
        return body

    def _request(self, name: str) -> Json:
        if self._often(0.15):
            count = self._random.choice((1, 2, 2, 3))
            ways = [{"name": f"way-{way}", **self._way()} for way in range(count)]
            return {"name": name, "firstAvailable": ways}
        way = self._way()
        if self._often(0.8 if way["deviceClassName"].startswith("monitor") else 0.03):
            way["adminAccess"] = True
        return {"name": name, "exactly": way}

    def _way(self) -> Json:
        way: Json = {"deviceClassName": self._class()}
        if self._often(0.12):
            way["allocationMode"] = "All"
        elif self._often(0.25):
            way["count"] = self._count()
        asked = self._amounts(way["deviceClassName"])
        if asked:
            way["capacity"] = {"requests": asked}
        if self._often(0.2):
            way["selectors"] = [
                {"cel": {"expression": self._selector()}}
                for _ in range(self._random.choice((1, 1, 2)))
            ]
        if self._target.sharing and self._often(0.15):
            way["tolerations"] = [self._toleration()]
        return way

    def _class(self) -> str:
        if self._often(0.1):
            return self._random.choice((ANY_CLASS, TUNED_CLASS))
        return f"{self._mostly(self._useful or _SHIPPED, _SHIPPED)}.{DRIVER}"

    def _count(self) -> int:
        if self._often(0.03):
            return 33
        return self._random.randint(2, 4 if self._often(0.2) else max(2, min(4, self._size // 2)))

    def _amounts(self, device_class: str) -> Json:
        asked: Json = {}
        if device_class.startswith("monitor") and self._often(0.9):
            return asked
        shares = device_class.startswith("slice.")
        if self._often(0.7 if shares else 0.25):
            asked["compute"] = self._mostly(_COMPUTE, _COMPUTE_ODD)
        if self._often(0.9 if shares else 0.25):
            asked["memory"] = self._mostly(_MEMORY, (*_MEMORY_ODD, *self._huge))
        if self._often(0.03):
            asked["shares"] = self._random.choice(("1", "2", "48"))
        if self._often(0.02):
            asked[f"{DRIVER}/memory"] = "1Gi"
        return asked

    def _selector(self) -> str:
        usable = (*_SELECTORS, *(_SHARED_ONLY if self._target.sharing else ()))
        return self._mostly(usable, _SELECTORS_ODD)

    def _toleration(self) -> Json:
        body: Json = {"operator": self._random.choice(("Exists", "Equal"))}
        if body["operator"] == "Equal" or self._often(0.7):
            body["key"] = self._random.choice((f"{DRIVER}/unhealthy", f"{DRIVER}/busy"))
        if body["operator"] == "Equal":
            body["value"] = self._random.choice(("xid-79", "lost"))
        if self._often(0.4):
            body["effect"] = self._random.choice(("NoSchedule", "NoExecute"))
        return body

    def _constraint(self, names: list[str]) -> Json:
        distinct = self._target.sharing and self._often(0.5)
        name = self._mostly(self._attributes or _ODD_NAMES, _ODD_NAMES)
        body: Json = {
            "distinctAttribute" if distinct else "matchAttribute": (
                name if "/" in name else f"{DRIVER}/{name}"
            )
        }
        if self._often(0.3):
            body["requests"] = [self._random.choice(names)]
        return body

    def _config(self, names: list[str]) -> Json:
        opaque = {"driver": DRIVER, "parameters": {"number": self._random.randint(1, 3)}}
        body: Json = {"opaque": opaque}
        if self._often(0.6):
            count = self._random.randint(1, len(names))
            body["requests"] = sorted(self._random.sample(names, count))
        return body

    def _mostly(self, usual: tuple[str, ...], odd: tuple[str, ...]) -> str:
        return self._random.choice(usual if self._often(0.85) else odd)

    def _often(self, share: float) -> bool:
        return self._random.random() < share
