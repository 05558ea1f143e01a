"""What a look at a node finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """How bad a finding is.

    OK: as it has to be, or none of our concern. WARNING: there is less of something than there
    could be, or it could not be seen. PROBLEM: claims fail, or limits do not hold, until it is
    mended.
    """

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line.

    Attributes:
        subject: what was looked at.
        text: what was found.
        mend: what to do about it; empty where nothing has to be done or `text` says it.
    """

    subject: str
    verdict: Verdict
    text: str
    mend: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "verdict": self.verdict,
            "text": self.text,
            "mend": self.mend,
        }


def ok(subject: str, text: str) -> Finding:
    return Finding(subject=subject, verdict=Verdict.OK, text=text)


def warning(subject: str, text: str, mend: str = "") -> Finding:
    return Finding(subject=subject, verdict=Verdict.WARNING, text=text, mend=mend)


def problem(subject: str, text: str, mend: str = "") -> Finding:
    return Finding(subject=subject, verdict=Verdict.PROBLEM, text=text, mend=mend)
