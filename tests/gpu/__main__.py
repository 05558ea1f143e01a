"""See `tests.gpu.runner`."""

from __future__ import annotations

import sys

from tests.gpu.runner import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
