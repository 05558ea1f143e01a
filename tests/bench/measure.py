"""The measurements: blocks of one driver after another, in an order that rotates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from dra_api.kubelet import dra_v1_pb2 as dra
from tests.bench.drivers import VARIANTS, Driver
from tests.bench.floor import Floor
from tests.bench.site import SHARED, Claims
from tests.bench.stats import percentile

FLOOR = "floor"
IN_FLIGHT = (1, 4, 16)
BATCH = 8
BURST = 100
_FEW_GPUS = 8
_FILLERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How much is measured.

    Attributes:
        rounds: each has every phase once.
        blocks: turns of each driver in a phase of a round.
        cycles: prepares and unprepares in a block, by calls in flight.
        batches: calls with several claims in a block.
        live: claims that stand while the processor time per claim is taken a second time.
        starts: cold starts of each driver.
        least_cycles: of each driver before its memory is looked at.
        limited: whether the reference is measured with client-go's default limit too; 20 seconds.
        first_shares: how often in a round a GPU gets its first share, which starts MPS.
        blocked: whether the other GPUs are measured while one is blocked; a minute.
    """

    rounds: int
    blocks: int
    cycles: dict[int, int]
    batches: int
    live: int
    starts: int
    least_cycles: int
    limited: bool
    first_shares: int
    blocked: bool


FULL = Form(
    rounds=5,
    blocks=3,
    cycles={1: 40, 4: 80, 16: 160},
    batches=8,
    live=500,
    starts=8,
    least_cycles=2000,
    limited=True,
    first_shares=6,
    blocked=True,
)
SHORT = Form(
    rounds=3,
    blocks=2,
    cycles={1: 25, 4: 40, 16: 80},
    batches=4,
    live=200,
    starts=3,
    least_cycles=0,
    limited=False,
    first_shares=3,
    blocked=False,
)


class Figures:
    """Values by metric and variant, one for each round (or start)."""

    def __init__(self) -> None:
        self.metrics: dict[str, dict[str, dict[str, list[float]]]] = {}
        self._samples: dict[tuple[str, str], list[float]] = defaultdict(list)

    def sample(self, metric: str, variant: str, values: Sequence[float]) -> None:
        """Add seconds to the round."""
        self._samples[metric, variant].extend(values)

    def end_round(self) -> None:
        """Reduce the round's samples to median and 99th percentile, in milliseconds."""
        for (metric, variant), values in self._samples.items():
            self.add(metric, variant, p50=1e3 * percentile(values, 50))
            self.add(metric, variant, p99=1e3 * percentile(values, 99))
        self._samples.clear()

    def add(self, metric: str, variant: str, **values: float) -> None:
        of_variant = self.metrics.setdefault(metric, {}).setdefault(variant, {})
        for name, value in values.items():
            of_variant.setdefault(name, []).append(value)


class Bench:
    """Drives all variants; `cycles` counts prepares of each."""

    def __init__(
        self, form: Form, drivers: dict[str, Driver], claims: dict[str, Claims], floor: Floor
    ) -> None:
        self.figures = Figures()
        self.cycles: dict[str, int] = dict.fromkeys(drivers, 0)
        self._form = form
        self._drivers = drivers
        self._claims = claims
        self._floor = floor
        self._turn = 0

    def round(self) -> None:
        """Measure every phase once."""
        for in_flight in IN_FLIGHT:
            self._cycling(f"c{in_flight}", in_flight, shares=False)
        for variant in self._turns(self._form.blocks):
            self._batches(variant)
        for variant in self._turns(self._form.blocks):
            self._burst("burst", variant, self._claims[variant].whole[:BURST])
        # What a GPU's first share costs is another figure.
        with self._standing(SHARED):
            self._shares()
        self.figures.end_round()

    def live(self) -> None:
        """Take time and processor time per claim while many others stand."""
        with self._standing(self._form.live):
            for _ in range(self._form.rounds):
                self._cycling("live-c1", 1, shares=False)
                self.figures.end_round()

    def go_on(self) -> None:
        """Cycle until each driver has had its least number of cycles; nothing is measured."""
        for variant in self._drivers:
            while self.cycles[variant] < self._form.least_cycles:
                self._cycle(variant, 16, 160, self._claims[variant].whole)

    @contextmanager
    def _standing(self, count: int) -> Iterator[None]:
        """Let the first claims of shares stand; each GPU for shares has one of the first few."""
        for variant, driver in self._drivers.items():
            self._fill(driver.kubelet.prepare, self._claims[variant].shares[:count])
        yield
        for variant, driver in self._drivers.items():
            self._fill(driver.kubelet.unprepare, self._claims[variant].shares[:count])

    def _shares(self) -> None:
        for in_flight in (1, 16):
            self._cycling(f"share-c{in_flight}", in_flight, shares=True)
        for variant in self._turns(self._form.blocks):
            further = self._claims[variant].shares[SHARED:]
            few = [each for number, each in enumerate(further) if number % SHARED < _FEW_GPUS]
            self._burst("share-burst", variant, few[:BURST])

    def _cycling(self, phase: str, in_flight: int, *, shares: bool) -> None:
        count = self._form.cycles[in_flight]
        cpu: dict[str, float] = defaultdict(float)
        done: dict[str, int] = defaultdict(int)
        for variant in self._turns(self._form.blocks):
            found = self._claims[variant]
            claims = found.shares[SHARED:] if shares else found.whole
            before_s = self._drivers[variant].cpu_s()
            prepares, unprepares = self._cycle(variant, in_flight, count, claims)
            cpu[variant] += self._drivers[variant].cpu_s() - before_s
            done[variant] += len(prepares)
            self.figures.sample(f"prepare-{phase}", variant, prepares)
            self.figures.sample(f"unprepare-{phase}", variant, unprepares)
            if phase == "c1":
                self._measure_floor(claims[: count // len(self._drivers) or 1])
        for variant, seconds in cpu.items():
            self.figures.add(f"cpu-{phase}", variant, p50=1e3 * seconds / done[variant])

    def _cycle(
        self, variant: str, in_flight: int, count: int, claims: Sequence[dra.Claim]
    ) -> tuple[list[float], list[float]]:
        """Prepare and unprepare claims in turn, `in_flight` at a time; seconds of each."""
        kubelet = self._drivers[variant].kubelet
        prepares: list[float] = []
        unprepares: list[float] = []

        def work(worker: int) -> None:
            own = claims[worker::in_flight]
            for number in range(count // in_flight):
                claim = own[number % len(own)]
                prepares.append(kubelet.prepare([claim]))
                unprepares.append(kubelet.unprepare([claim]))

        _side_by_side(work, in_flight)
        self.cycles[variant] += len(prepares)
        return prepares, unprepares

    def _batches(self, variant: str) -> None:
        kubelet, claims = self._drivers[variant].kubelet, self._claims[variant].whole
        for number in range(self._form.batches):
            some = claims[number * BATCH : (number + 1) * BATCH]
            self.figures.sample("prepare-batch", variant, [kubelet.prepare(some)])
            self.figures.sample("unprepare-batch", variant, [kubelet.unprepare(some)])
            self.cycles[variant] += len(some)

    def _burst(self, phase: str, variant: str, claims: Sequence[dra.Claim]) -> None:
        kubelet = self._drivers[variant].kubelet
        self.figures.sample(f"prepare-{phase}", variant, [kubelet.prepare_at_once(claims)])
        self.figures.sample(f"unprepare-{phase}", variant, [kubelet.unprepare_at_once(claims)])
        self.cycles[variant] += len(claims)

    def _measure_floor(self, claims: Sequence[dra.Claim]) -> None:
        prepares = [self._floor.prepare(claim) for claim in claims]
        unprepares = [self._floor.unprepare(claim) for claim in claims]
        self.figures.sample("prepare-c1", FLOOR, prepares)
        self.figures.sample("unprepare-c1", FLOOR, unprepares)

    def _fill(self, call: Callable[[list[dra.Claim]], float], claims: Sequence[dra.Claim]) -> None:
        def work(worker: int) -> None:
            for claim in claims[worker::_FILLERS]:
                call([claim])

        _side_by_side(work, _FILLERS)

    def _turns(self, blocks: int) -> Iterator[str]:
        """Each variant `blocks` times; who begins changes from turn to turn."""
        order = [each for each in VARIANTS if each in self._drivers]
        for _ in range(blocks):
            first = self._turn % len(order)
            self._turn += 1
            yield from order[first:] + order[:first]


def _side_by_side(work: Callable[[int], None], workers: int) -> None:
    if workers == 1:
        work(0)
        return
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(work, number) for number in range(workers)]:
            future.result()
