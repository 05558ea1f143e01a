"""The raw protocol: what is a request, and that nothing else gets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.checkpoint.raw_line import (
    MAX_BODY,
    MAX_LINE,
    Marker,
    Phase,
    RawHead,
    RawLineError,
    RawRequest,
    decode,
    decode_head,
    encode,
    veto,
)

_pids = st.integers(1, 2**31 - 1)
_times = st.integers(0, 2**64 - 1)
_processes = st.none() | st.tuples(_pids, _times)
_paths = st.binary(max_size=200).map(lambda path: b"/" + path.replace(b"\0", b" "))
_claims = st.none() | st.from_regex(r"[A-Za-z0-9-]{1,64}", fullmatch=True)


@st.composite
def _requests(draw: st.DrawFn) -> RawRequest:
    body = draw(st.binary(max_size=100))
    pid, started = draw(_processes) or (None, None)
    criu, criu_started = draw(_processes) or (None, None)
    head = RawHead(
        phase=draw(st.sampled_from(Phase)),
        claim=draw(_claims),
        pid=pid,
        started=started,
        criu=criu,
        criu_started=criu_started,
        images=draw(st.none() | _paths),
        marker=draw(st.none() | st.sampled_from(Marker)),
        cut=draw(st.booleans()),
        length=len(body),
    )
    return RawRequest(head=head, body=body)


@given(_requests())
def test_request_comes_back_when_it_is_decoded(request: RawRequest) -> None:
    assert decode(encode(request)) == request


@given(_requests(), st.data())
def test_request_is_taken_or_refused_when_bytes_of_it_change(
    request: RawRequest, data: st.DataObject
) -> None:
    raw = bytearray(encode(request))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    _decode_or_refuse(bytes(raw))


@given(st.binary(max_size=300))
def test_bytes_are_taken_or_refused(raw: bytes) -> None:
    _decode_or_refuse(raw)
    _decode_or_refuse(b"GPUSLICE1 pre-dump role=criu " + raw)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"", "not a line"),
        (b"GPUSLICE1 pre-dump role=criu len=0", "not a line"),
        (b"GPUSLICE2 pre-dump role=criu len=0\n", "not a line"),
        (b"GPUSLICE1 pre-dump  role=criu len=0\n", "not a line"),
        (b"GPUSLICE1 pre-dump role=criu len=0 \n", "not a line"),
        (b"GPUSLICE1 pre-dump role=criu len=0\r\n", "not a line"),
        (b"GPUSLICE1 pre-dump role=criu images=/\xe4 len=0\n", "not a line"),
        (b"GPUSLICE1 pre-dump role=criu images=/%00 len=0\n", "absolute path"),
        (b"GPUSLICE1 pre-dump role=criu images=/%0 len=0\n", "absolute path"),
        (b"GPUSLICE1 pre-dump role=criu images=tmp len=0\n", "absolute path"),
        (b"GPUSLICE1 pre-boot role=criu len=0\n", "unknown phase 'pre-boot'"),
        (b"GPUSLICE1 pre-dump role=oci len=0\n", "role=oci in phase pre-dump"),
        (b"GPUSLICE1 poststop role=criu len=0\n", "role=criu in phase poststop"),
        (b"GPUSLICE1 poststop len=0\n", "role=None in phase poststop"),
        (b"GPUSLICE1 pre-dump role=criu x=1 len=0\n", "unknown key 'x'"),
        (b"GPUSLICE1 pre-dump role=criu role=criu len=0\n", "out of order, or one of them twice"),
        (b"GPUSLICE1 pre-dump role=criu len=0 pid=1\n", "out of order, or one of them twice"),
        (b"GPUSLICE1 pre-dump role=criu pid=1 len=0\n", "without the time of its start"),
        (b"GPUSLICE1 pre-dump role=criu criu_started=1 len=0\n", "without the time of its start"),
        (b"GPUSLICE1 pre-dump role=criu pid=0 started=1 len=0\n", "pid=0 is no process id"),
        (b"GPUSLICE1 pre-dump role=criu pid=2147483648 started=1 len=0\n", "is no process id"),
        (b"GPUSLICE1 pre-dump role=criu pid=007 started=1 len=0\n", "pid='007' is no number"),
        (b"GPUSLICE1 pre-dump role=criu claim=a/b len=0\n", "claim='a/b' is no UID"),
        (b"GPUSLICE1 pre-dump role=criu marker=maybe len=0\n", "unknown marker 'maybe'"),
        (b"GPUSLICE1 pre-dump role=criu cut=0 len=0\n", "cut='0', not 1"),
        (b"GPUSLICE1 pre-dump role=criu\n", "len=None, not a number up to 65536"),
        (b"GPUSLICE1 pre-dump role=criu len=65537\n", "len=65537, not a number up to 65536"),
        (b"GPUSLICE1 pre-dump role=criu images=/" + b"x" * MAX_LINE + b" len=0\n", "not a line"),
    ],
)
def test_line_is_refused_when_it_is_not_as_the_program_writes_it(line: bytes, text: str) -> None:
    with pytest.raises(RawLineError) as refused:
        decode_head(line)
    assert text in str(refused.value)


@pytest.mark.parametrize("body", [b"", b"a", b"abc"])
def test_request_is_refused_when_its_body_has_another_length(body: bytes) -> None:
    with pytest.raises(RawLineError, match=f"len=2, but {len(body)} bytes follow"):
        decode(b"GPUSLICE1 poststop role=oci len=2\n" + body)


def test_request_is_taken_when_its_body_is_as_long_as_can_be() -> None:
    request = RawRequest(
        head=RawHead(phase=Phase.POSTSTOP, cut=True, length=MAX_BODY), body=b"\n" * MAX_BODY
    )
    assert decode(encode(request)) == request


def test_request_is_refused_when_its_line_does_not_end() -> None:
    with pytest.raises(RawLineError, match="no line ends within the first 4096 bytes"):
        decode(b"x" * 100_000 + b"\n")


@given(st.text())
def test_veto_is_one_line_that_the_program_shows_whole(reason: str) -> None:
    answer = veto(reason)
    assert answer.startswith(b"VETO ")
    assert answer.index(b"\n") == len(answer) - 1 <= 1024
    assert answer.decode().isprintable() or answer.decode()[:-1].isprintable()


def test_veto_keeps_the_beginning_when_the_reason_is_long() -> None:
    assert veto("ä" * 5000) == ("VETO " + "ä" * 500 + "\n").encode()


def _decode_or_refuse(raw: bytes) -> None:
    try:
        request = decode(raw)
    except RawLineError:
        return
    assert encode(request) == raw or b"%" in raw
