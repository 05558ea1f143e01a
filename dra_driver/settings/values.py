"""How each kind of value is read from a flag, a variable or a YAML file.

Every function takes what was given and raises ValueError with the way out; the caller puts the
setting and the value in front of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_POD_UID = re.compile(r"[A-Za-z0-9-]{0,63}", re.ASCII)
_ENDPOINT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]/]*)):(\d{1,5})", re.ASCII)
_PROGRAM = re.compile(r"/[A-Za-z0-9._/+@-]*[A-Za-z0-9_+@-]", re.ASCII)
_NODE_NAME_MAX = 253
_DRIVER_NAME_MAX = 27
_PORT_MAX = 65535
_UID_MAX = 2**32 - 2
_XID_MAX = 2**31 - 1
_SECONDS_MAX = 86400.0
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to listen; an empty host is every address, port 0 a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def node_name(given: object) -> str:
    text = _text(given)
    if len(text) > _NODE_NAME_MAX or not _SUBDOMAIN.fullmatch(text):
        raise ValueError("give the name of this node's Node object")
    return text


def driver_name(given: object) -> str:
    text = _text(given)
    if len(text) > _DRIVER_NAME_MAX or not _SUBDOMAIN.fullmatch(text):
        raise ValueError(
            f"give a DNS subdomain of at most {_DRIVER_NAME_MAX} characters (it becomes a part of "
            "socket paths), such as gpuslice.io"
        )
    return text


def pod_uid(given: object) -> str:
    text = _text(given)
    if not _POD_UID.fullmatch(text):
        raise ValueError("give the UID of this pod (metadata.uid), or nothing")
    return text


def directory(given: object) -> Path:
    text = _text(given)
    if not text.startswith("/") or "\0" in text or ".." in text.split("/"):
        raise ValueError("give an absolute path without '..', such as /var/lib/gpuslice")
    return Path(text)


def program_path(given: object) -> Path:
    """A path that CRIU's configuration can name, below a folder of its own."""
    text = _text(given)
    parts = text.split("/")
    if not _PROGRAM.fullmatch(text) or ".." in parts or len([each for each in parts if each]) < 3:  # noqa: PLR2004
        raise ValueError(
            "give an absolute path of letters, digits and ._+@-, in a folder of a folder, such as "
            "/opt/gpuslice/bin/gpuslice-hook"
        )
    return Path(text)


def optional_file(given: object) -> Path | None:
    """A file's path, made absolute; None for an empty text."""
    text = _text(given)
    if "\0" in text:
        raise ValueError("give the path of a file")
    return Path.cwd() / text if text else None


def endpoint(given: object) -> Endpoint | None:
    """None for an empty text."""
    text = _text(given)
    if not text:
        return None
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match[3]) > _PORT_MAX:
        raise ValueError(
            "give HOST:PORT, such as :8080 or 127.0.0.1:8080 ([::1]:8080 for IPv6), or nothing"
        )
    return Endpoint(match[1] or match[2], int(match[3]))


def flag(given: object) -> bool:
    text = str(given).lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("give true or false")


def choice(kind: type[E]) -> Callable[[object], E]:
    def read(given: object) -> E:
        text = _text(given)
        if text not in tuple(kind):
            raise ValueError(f"give one of {', '.join(kind)}")
        return kind(text)

    return read


def seconds(given: object) -> float:
    try:
        number = float(_text(given))
    except ValueError:
        number = -1.0
    if not 0 < number <= _SECONDS_MAX:
        raise ValueError(f"give a number of seconds above 0, at most {_SECONDS_MAX:g}")
    return number


def optional_uid(given: object) -> int | None:
    """None for an empty text."""
    text = _text(given)
    if not text:
        return None
    number = _integer(text)
    if number is None or number > _UID_MAX:
        raise ValueError(f"give a numeric user id from 0 to {_UID_MAX}, or nothing")
    return number


def xids(given: object) -> tuple[int, ...]:
    """XIDs from "13,31" or a YAML list, sorted."""
    parts = given if isinstance(given, list | tuple) else str(given).split(",")
    texts = [str(part).strip() for part in parts]
    numbers = [_integer(text) for text in texts if text]
    known = {number for number in numbers if number is not None and 0 < number <= _XID_MAX}
    if len(known) != len(set(numbers)):
        raise ValueError("give NVIDIA's error numbers (XIDs) with commas between, such as 13,31")
    return tuple(sorted(known))


def text(given: object) -> str:
    return _text(given).strip()


def _text(given: object) -> str:
    if isinstance(given, bool | list | dict):
        raise ValueError("give a text")  # noqa: TRY004 - pydantic lists ValueErrors only
    return str(given)


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,10}", text, re.ASCII) else None
