"""What a step is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.gpu.site import Site

Run = Callable[[Site], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One question.

    Attributes:
        budget_s: it is killed then.
        asks: the question.
        needs: "" or what the site has to have for it: mps, exclusive, nvml.
        oldest: the first driver branch for which it makes sense.
    """

    name: str
    budget_s: float
    asks: str
    run: Run
    needs: frozenset[str] = frozenset()
    oldest: int = 0

    def skipped(self, site: Site) -> str:
        """Why it cannot be asked there; empty where it can."""
        if site.branch < self.oldest:
            return f"driver {site.driver or 'unknown'} is older than {self.oldest}"
        if "mps" in self.needs and not site.control:
            return "there is no nvidia-cuda-mps-control; give --mps-control"
        if "exclusive" in self.needs and not site.exclusive:
            return "the compute mode stays as it is without --exclusive"
        if "nvml" in self.needs and not site.nvml:
            return "there is no pynvml"
        return ""
