"""The command behind hack/bench."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.hook import measure_hook
from tests.bench.hook_report import hook_table, missed
from tests.bench.measure import FULL, SHORT
from tests.bench.report import ratios, table
from tests.bench.run import run
from tests.bench.stats import regressions

HERE = Path(__file__).parent
RECORDED = HERE / "recorded.json"
README = HERE.parents[1] / "README.md"
BEGIN = "<!-- benchmark: written by hack/bench record -->\n"
END = "<!-- end of benchmark -->\n"
_FORMS = {"full": FULL, "short": SHORT}


def main() -> int:
    parser = argparse.ArgumentParser(prog="hack/bench")
    parser.add_argument("action", choices=[*_FORMS, "hook", "record"])
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.action == "record":
        return record(given.out or _newest())
    if given.action == "hook":
        document = measure_hook(given.folder)
        text = hook_table(document)
    else:
        document = run(
            _FORMS[given.action], name=given.action, binary=given.reference, folder=given.folder
        )
        text = table(document)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    out: Path = given.out or HERE / "results" / f"{stamp}-{given.action}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(spelled(document))
    print(text)
    print(f"figures: {out}", file=sys.stderr)
    match given.action:
        case "short":
            return compare(document)
        case "hook":
            return judge(document)
        case _:
            return 0


def record(path: Path) -> int:
    """Make a result the recorded one, and the README's."""
    document = json.loads(path.read_text())
    RECORDED.write_text(spelled(document))
    README.write_text(with_table(README.read_text(), document))
    return 0


def with_table(readme: str, document: dict[str, Any]) -> str:
    """The README with a document's table between its marks.

    Raises:
        ValueError: it has no marks.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("README.md lacks the marks between which the benchmark's table goes")
    return f"{before}{begin}{table(document)}{end}{after}"


def compare(document: dict[str, Any]) -> int:
    """Say what became slower than recorded; 1 where something did."""
    found = regressions(ratios(document), ratios(json.loads(RECORDED.read_text())))
    for text in found:
        print(f"bench: {text}", file=sys.stderr)
    return 1 if found else 0


def judge(document: dict[str, Any]) -> int:
    """Say which aims the hook missed; 1 where it missed one."""
    found = missed(document)
    for text in found:
        print(f"bench: {text}", file=sys.stderr)
    return 1 if found else 0


def spelled(document: dict[str, Any]) -> str:
    """JSON without more digits than the clock is good for."""
    return json.dumps(_rounded(document), indent=1, sort_keys=True) + "\n"


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 4)
        case dict():
            return {key: _rounded(each) for key, each in value.items()}
        case list():
            return [_rounded(each) for each in value]
        case _:
            return value


def _newest() -> Path:
    found = sorted((HERE / "results").glob("*-full.json"))
    if not found:
        sys.exit("bench: there is no result of a full run yet: run hack/bench")
    return found[-1]


if __name__ == "__main__":
    sys.exit(main())
