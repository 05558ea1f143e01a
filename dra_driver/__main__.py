"""`python -m dra_driver` is the command `gpuslice`."""

from __future__ import annotations

import sys

from dra_driver.cli import main

if __name__ == "__main__":
    sys.exit(main())
