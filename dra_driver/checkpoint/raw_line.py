r"""The raw protocol of gpuslice-hook, decoded and encoded; dra_driver/native/hook.c speaks it.

    GPUSLICE1 <phase> role=criu|oci [key=value …] len=N\n   at most MAX_LINE bytes
    N bytes                                                 at most MAX_BODY
    OK\n  or  VETO <text>\n                                 the answer

Keys stand in the order of the attributes of `RawHead`, each at most once; values are
percent-encoded. The program sends what it can tell and leaves out the rest. It waits for the
answer, so whoever reads a request can still look at the sender and its cgroup by the peer
credentials of the socket.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar
from urllib.parse import quote_from_bytes, unquote_to_bytes

PROTOCOL: Final = "GPUSLICE1"
MAX_LINE: Final = 4096
MAX_BODY: Final = 65536
MAX_REASON: Final = 1000
"""Bytes of a refusal that the program shows; the rest of a longer one would be lost."""

OK: Final = b"OK\n"


class RawLineError(ValueError):
    """What came is no request of gpuslice-hook; the text says in which respect."""


class Role(StrEnum):
    CRIU = "criu"
    OCI = "oci"


class Phase(StrEnum):
    """When a call comes: actions of CRIU's scripts, then hooks of an OCI runtime.

    NETWORK_LOCK comes from programs of older releases alone.
    """

    PRE_DUMP = "pre-dump"
    NETWORK_LOCK = "network-lock"
    POST_DUMP = "post-dump"
    NETWORK_UNLOCK = "network-unlock"
    PRE_RESTORE = "pre-restore"
    POST_RESTORE = "post-restore"
    PRE_RESUME = "pre-resume"
    POST_RESUME = "post-resume"
    CREATE_RUNTIME = "createRuntime"
    POSTSTOP = "poststop"

    @property
    def role(self) -> Role:
        """Who calls in this phase."""
        return Role.OCI if self in (Phase.CREATE_RUNTIME, Phase.POSTSTOP) else Role.CRIU


class Marker(StrEnum):
    """Whether the process that is dumped sees the mount of a claim."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawHead:
    """The line of a request.

    Attributes:
        claim: UID of the claim whose CDI spec names the program.
        pid: CRTOOLS_INIT_PID, the container's first process, as the host counts. CRIU gives none at
            pre-restore.
        started: when `pid` started, in clock ticks since boot: a process id alone may come again.
        criu, criu_started: the same of CRIU; it stays the same from the first to the last call.
        images: folder of the images, as the host names it.
        marker: at pre-dump alone.
        cut: whether the body is the beginning of a longer one.
        length: bytes of the body.
    """

    phase: Phase
    claim: str | None = None
    pid: int | None = None
    started: int | None = None
    criu: int | None = None
    criu_started: int | None = None
    images: bytes | None = None
    marker: Marker | None = None
    cut: bool = False
    length: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRequest:
    """One call of gpuslice-hook; `body` is the state that an OCI runtime gave, else empty."""

    head: RawHead
    body: bytes = b""


_KEYS = (
    "role",
    "claim",
    "pid",
    "started",
    "criu",
    "criu_started",
    "images",
    "marker",
    "cut",
    "len",
)
_LINE = re.compile(rb"GPUSLICE1 ([A-Za-z-]+)((?: [a-z_]+=[A-Za-z0-9%._~/:-]*)+)\n")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-F]{2})")
_CLAIM = re.compile(r"[A-Za-z0-9-]{1,64}")
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,19})")
_LARGEST_PID = 2**31 - 1


def decode(data: bytes) -> RawRequest:
    """A whole request, as `encode` gives it.

    Raises:
        RawLineError: it is none.
    """
    end = data.find(b"\n", 0, MAX_LINE) + 1
    if end == 0:
        raise RawLineError(f"no line ends within the first {MAX_LINE} bytes")
    return decode_body(decode_head(data[:end]), data[end:])


def decode_head(line: bytes) -> RawHead:
    """The line of a request, with its newline; `length` says how many bytes to read after it.

    Raises:
        RawLineError: it is none.
    """
    match = _LINE.fullmatch(line) if len(line) <= MAX_LINE else None
    if match is None:
        raise RawLineError(f"not a line of {PROTOCOL}: {line[:60]!r}")
    phase = _one_of(Phase, "phase", match[1].decode())
    fields = _fields(match[2].decode())
    if fields.get("role") != phase.role:
        raise RawLineError(f"role={fields.get('role')} in phase {phase}")
    head = RawHead(
        phase=phase,
        claim=_claim(fields.get("claim")),
        pid=_pid(fields, "pid"),
        started=_number(fields, "started"),
        criu=_pid(fields, "criu"),
        criu_started=_number(fields, "criu_started"),
        images=_images(fields.get("images")),
        marker=_one_of(Marker, "marker", fields["marker"]) if "marker" in fields else None,
        cut=_cut(fields.get("cut")),
        length=_length(fields),
    )
    if (head.pid is None) != (head.started is None) or (head.criu is None) != (
        head.criu_started is None
    ):
        raise RawLineError("a process id without the time of its start, or the other way round")
    return head


def decode_body(head: RawHead, body: bytes) -> RawRequest:
    """A whole request of a line and what followed it.

    Raises:
        RawLineError: the line has announced another length.
    """
    if len(body) != head.length:
        raise RawLineError(f"len={head.length}, but {len(body)} bytes follow")
    return RawRequest(head=head, body=body)


def encode(request: RawRequest) -> bytes:
    """The bytes of a request, as the program sends them; for tests and tools."""
    head = request.head
    values: tuple[tuple[str, str | int | bytes | None], ...] = (
        ("role", head.phase.role),
        ("claim", head.claim),
        ("pid", head.pid),
        ("started", head.started),
        ("criu", head.criu),
        ("criu_started", head.criu_started),
        ("images", head.images),
        ("marker", head.marker),
        ("cut", 1 if head.cut else None),
        ("len", head.length),
    )
    fields = (f" {key}={_quoted(value)}" for key, value in values if value is not None)
    return f"{PROTOCOL} {head.phase}{''.join(fields)}\n".encode() + request.body


def veto(reason: str) -> bytes:
    """The answer that refuses; `reason` is shown in the log of CRIU or of the runtime."""
    line = "".join(c if c.isprintable() else " " for c in reason).encode(errors="replace")
    return b"VETO " + line[:MAX_REASON].decode(errors="ignore").encode() + b"\n"


def _quoted(value: str | int | bytes) -> str:
    raw = value if isinstance(value, bytes) else str(value).encode()
    return quote_from_bytes(raw, safe="/:")


def _fields(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(" ")[1:]]
    known = [_KEYS.index(key) if key in _KEYS else -1 for key, _, _ in pairs]
    if -1 in known:
        raise RawLineError(f"unknown key {pairs[known.index(-1)][0]!r}")
    if known != sorted(set(known)):
        raise RawLineError("keys out of order, or one of them twice")
    return {key: value for key, _, value in pairs}


_Choice = TypeVar("_Choice", bound=StrEnum)


def _one_of(choices: type[_Choice], name: str, value: str) -> _Choice:
    try:
        return choices(value)
    except ValueError:
        raise RawLineError(f"unknown {name} {value!r}") from None


def _claim(value: str | None) -> str | None:
    if value is not None and not _CLAIM.fullmatch(value):
        raise RawLineError(f"claim={value!r} is no UID")
    return value


def _number(fields: dict[str, str], key: str) -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    if not _NUMBER.fullmatch(value):
        raise RawLineError(f"{key}={value!r} is no number")
    return int(value)


def _pid(fields: dict[str, str], key: str) -> int | None:
    number = _number(fields, key)
    if number is not None and not 0 < number <= _LARGEST_PID:
        raise RawLineError(f"{key}={number} is no process id")
    return number


def _images(value: str | None) -> bytes | None:
    if value is None:
        return None
    path = unquote_to_bytes(value)
    if _BAD_ESCAPE.search(value) or not path.startswith(b"/") or b"\0" in path:
        raise RawLineError(f"images={value!r} is no absolute path")
    return path


def _cut(value: str | None) -> bool:
    if value not in (None, "1"):
        raise RawLineError(f"cut={value!r}, not 1")
    return value is not None


def _length(fields: dict[str, str]) -> int:
    length = _number(fields, "len")
    if length is None or length > MAX_BODY:
        raise RawLineError(f"len={fields.get('len')}, not a number up to {MAX_BODY}")
    return length
