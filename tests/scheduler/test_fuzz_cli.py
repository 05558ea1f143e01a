"""What hack/fuzz says without a control plane."""

from __future__ import annotations

import json

import pytest

from tests.scheduler.fuzz_cli import main, print_difference
from tests.scheduler.runner import Report
from tests.scheduler.values import TARGETS


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cases", "many"], "'many' is no whole number"),
        (["--cases", "0"], "1 is the least"),
        (["--case", "3"], "needs the --seed"),
        (["--kubernetes", "1.37.2", "--profile", "gates"], "not tried with profile gates"),
    ],
)
def test_fuzz_refuses_when_nothing_could_be_compared(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["allocate", *arguments])
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


def test_fuzz_tells_how_to_see_a_difference_again(capsys: pytest.CaptureFixture[str]) -> None:
    print_difference(TARGETS[1], 7, Report(differences=[{"case": 12, "pod": 0}, {"case": 13}]))
    told = json.loads(capsys.readouterr().out)
    assert told["differences"] == 2
    assert told["case"] == 12
    words = told["again"].split()
    assert words[:2] == ["hack/fuzz", "allocate"]
    assert words[2:] == [
        *("--kubernetes", "1.34.4", "--profile", "gates"),
        *("--seed", "7", "--case", "12"),
    ]
