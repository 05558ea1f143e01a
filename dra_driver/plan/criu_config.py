"""Our lines in a configuration file of CRIU: found, put in, taken out again.

CRIU reads one option a line, without its dashes: words between blanks, and a word that begins with
# ends the line. `action-script` may stand there several times; the last one runs first. It names a
program, which gets no arguments. Source: criu/config.c and criu/action-scripts.c.

Our lines go first, so that no line of others has to change for them, not even a last one without a
newline: taking them out leaves every byte as it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

PROGRAM: Final = "gpuslice-hook"
"""Name of the program, wherever it is installed."""


class ConfigRefused(ValueError):  # noqa: N818 - reads as the verdict that it is
    """The file cannot be changed safely; the text names its line and the way out."""


class Origin(Enum):
    """What was there before our lines, hence what goes with them; the value ends their first."""

    FILE = "are gpuslice's"
    NO_FILE = "and this file are gpuslice's"
    NO_FOLDER = "and this file and its folder are gpuslice's"


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Nothing in the file calls the hook, and it can be put in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Our lines are there; `script` is the program that they name."""

    script: str
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A line that is not ours calls the hook; lines count from 1."""

    line: int
    script: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUnderstood:
    """A line is neither what CRIU reads nor what we wrote; lines count from 1.

    Attributes:
        ours: whether it is what somebody made of our lines.
    """

    line: int
    reason: str
    ours: bool = False


State = Absent | Installed | Foreign | NotUnderstood

_MARK = f"# {PROGRAM}:"
_BEGINNINGS = {f"{_MARK} these three lines {origin.value}": origin for origin in Origin}
_END = f"{_MARK} end"
_OWN_LINES = 3

_SCRIPT = re.compile(r"/[A-Za-z0-9._/+@-]*")
_OWN = re.compile(rf"action-script ({_SCRIPT.pattern})")
_ANY_SCRIPT = re.compile(r"[ \t]*action-script(?:[ \t]+|=)\"?([^ \t\"]*)")
_BLANK_OR_COMMENT = re.compile(r"[ \t]*(?:#.*)?", re.DOTALL)
_OPTION = re.compile(r"[ \t]*[A-Za-z0-9][A-Za-z0-9-]*(?:[ \t=].*)?", re.DOTALL)
_CONTROL = re.compile(r"[\0-\x08\x0b-\x1f\x7f]")


def state(existing: str | None) -> State:
    """How the file stands; None is no file."""
    lines = [] if existing is None else existing.split("\n")
    marks = [number for number, line in enumerate(lines) if line.lstrip().startswith(_MARK)]
    return _with_marks(lines, marks) if marks else _without_marks(lines)


def merge(existing: str | None, script: str, *, folder_is_new: bool = False) -> str:
    """The file with our lines, which name `script`; those of an earlier installation are renewed.

    Args:
        existing: None where there is no file.
        script: absolute path on the host.
        folder_is_new: whether its folder was made for it.

    Raises:
        ConfigRefused: it is not safe to change this file, or CRIU could not read such a path.
    """
    if not _SCRIPT.fullmatch(script):
        raise ConfigRefused(
            f"CRIU cannot be told to run {script!r}: give an absolute path of letters, digits and"
            " ._/+@-"
        )
    match state(existing):
        case Absent():
            origin = _origin(existing, folder_is_new=folder_is_new)
            return _block(script, origin) + (existing or "")
        case Installed(origin=origin):
            before, after = _around(existing or "")
            newline = "\n" if not after and not (existing or "").endswith("\n") else ""
            return before + _block(script, origin).removesuffix(newline) + after
        case Foreign(line=line, script=other):
            raise ConfigRefused(f"line {line} already runs {other}: remove that line first")
        case NotUnderstood(line=line, reason=reason):
            raise ConfigRefused(f"line {line} {reason}: put it right first")


def remove(existing: str | None) -> str | None:
    """The file as it is without our lines; None where it is to go with them, or is not there.

    Raises:
        ConfigRefused: our lines are no longer as we wrote them.
    """
    match state(existing):
        case Installed(origin=origin):
            rest = "".join(_around(existing or ""))
            return rest if rest or origin is Origin.FILE else None
        case NotUnderstood(line=line, reason=reason, ours=True):
            raise ConfigRefused(f"line {line} {reason}: remove what is left of {PROGRAM} by hand")
        case _:
            return existing


def _origin(existing: str | None, *, folder_is_new: bool) -> Origin:
    if existing is not None:
        return Origin.FILE
    return Origin.NO_FOLDER if folder_is_new else Origin.NO_FILE


def _block(script: str, origin: Origin) -> str:
    return f"{_MARK} these three lines {origin.value}\naction-script {script}\n{_END}\n"


def _around(existing: str) -> tuple[str, str]:
    """What stands before and after our lines, which are there."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", existing)
    first = next(number for number, line in enumerate(lines) if line.startswith(_MARK))
    return "".join(lines[:first]), "".join(lines[first + _OWN_LINES :])


def _with_marks(lines: list[str], marks: list[int]) -> State:
    first = marks[0]
    own = lines[first : first + _OWN_LINES]
    script = _OWN.fullmatch(own[1]) if len(own) == _OWN_LINES else None
    if marks != [first, first + 2] or own[0] not in _BEGINNINGS or own[2] != _END or not script:
        reason = "begins lines of gpuslice that somebody changed"
        return NotUnderstood(line=first + 1, reason=reason, ours=True)
    return Installed(script=script[1], origin=_BEGINNINGS[own[0]])


def _without_marks(lines: list[str]) -> State:
    for number, line in enumerate(lines, 1):
        if _BLANK_OR_COMMENT.fullmatch(line):
            continue
        if _CONTROL.search(line):
            return NotUnderstood(line=number, reason="holds a control character")
        if not _OPTION.fullmatch(line):
            return NotUnderstood(line=number, reason="is not an option of CRIU")
        if line.replace('\\"', "").count('"') % 2:
            return NotUnderstood(line=number, reason="has a quote that does not end")
        script = _ANY_SCRIPT.match(line)
        if script and script[1].rpartition("/")[2] == PROGRAM:
            return Foreign(line=number, script=script[1])
    return Absent()
