"""What hack/fuzz does."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.kube.process import NotReadyError
from tests.scheduler.cases import random_case
from tests.scheduler.control_plane import ControlPlane
from tests.scheduler.runner import Report, Runner
from tests.scheduler.values import TARGETS, Target

_AT_ONCE = 500
"""Cases in one control plane."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    say = _Teller()
    for target in _targets(options):
        kinds: Counter[str] = Counter()
        for numbers in _batches(options):
            try:
                report = _play(target, options.seed, numbers, say)
            except NotReadyError as error:
                say(f"{target}, seed {options.seed}, cases {numbers}: {error}")
                return 1
            kinds += report.kinds
            if report.differences:
                print_difference(target, options.seed, report)
                return 1
        answers = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        print(f"{target}: seed {options.seed}: the same answers for all pods: {answers}")
    return 0


class _Teller:
    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"fuzz: {time.monotonic() - self._start:5.0f} s: {text}", file=sys.stderr)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hack/fuzz", allow_abbrev=False)
    parser.add_argument("what", choices=["allocate"])
    parser.add_argument("--cases", type=_count, default=_AT_ONCE, metavar="N")
    parser.add_argument("--seed", type=_count, metavar="S")
    parser.add_argument("--case", type=_count, metavar="N")
    versions = sorted({target.version for target in TARGETS})
    parser.add_argument("--kubernetes", choices=versions)
    parser.add_argument("--profile", choices=sorted({each.profile.name for each in TARGETS}))
    options = parser.parse_args(arguments)
    if options.cases == 0:
        parser.error("argument --cases: 0 cases compare nothing; 1 is the least")
    if options.case is not None and options.seed is None:
        parser.error("argument --case: needs the --seed that it is a case of")
    if options.seed is None:
        options.seed = secrets.randbelow(1_000_000)
    if not _targets(options):
        parser.error(f"{options.kubernetes} is not tried with profile {options.profile}")
    return options


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)


def _targets(options: argparse.Namespace) -> tuple[Target, ...]:
    return tuple(
        each
        for each in TARGETS
        if options.kubernetes in {None, each.version}
        and options.profile in {None, each.profile.name}
    )


def _batches(options: argparse.Namespace) -> Iterator[range]:
    if options.case is not None:
        yield range(options.case, options.case + 1)
        return
    for start in range(0, options.cases, _AT_ONCE):
        yield range(start, min(start + _AT_ONCE, options.cases))


def _play(target: Target, seed: int, numbers: range, say: _Teller) -> Report:
    cases = tuple(random_case(seed, number, target) for number in numbers)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        say(f"Kubernetes {target}, seed {seed}, cases {numbers.start} to {numbers.stop - 1}")
        with ControlPlane(Path(folder), target) as plane:
            return Runner(plane, cases, say=say).run()


def print_difference(target: Target, seed: int, report: Report) -> None:
    """Print the first difference as JSON, with the command that shows it again."""
    first = report.differences[0]
    again = (
        f"hack/fuzz allocate --kubernetes {target.version} --profile {target.profile.name}"
        f" --seed {seed} --case {first['case']}"
    )
    found = {"differences": len(report.differences), "seed": seed, "again": again}
    print(json.dumps(found | first, indent=2))


if __name__ == "__main__":
    sys.exit(main())
