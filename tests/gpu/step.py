"""Runs one step in this process: python -m tests.gpu.step NAME SITE RESULT."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.gpu.site import Site
from tests.gpu.steps import step_named


def main(name: str, site: str, result: str) -> None:
    found = step_named(name).run(Site.from_json(site))
    part = Path(result + ".part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.rename(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
