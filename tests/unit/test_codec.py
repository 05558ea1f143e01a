"""The stored form of records: this release's, older ones', newer ones', and rubbish."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.claim import ClaimRef, PodRef
from dra_driver.model.device import GpuUuid
from dra_driver.model.record import GpuUse, PreparedDevice, Record, RecordState, Use
from dra_driver.model.share import GpuShare, OnExceed, Qos, Sharing, TimeSlice
from dra_driver.model.steps import EnsureShare, SetTimeSlice, WriteCdiSpec
from dra_driver.state.codec import Damaged, FromTheFuture, decode, encode

GOLDEN = Path(__file__).parent / "golden/records"
GPU = GpuUuid("GPU-00000000-0000-4000-8000-000000000000")

WHOLE = Record(
    claim=ClaimRef("team-a", "training", "0000-whole"),
    state=RecordState.PREPARED,
    boot_id="boot-1",
    uses=(GpuUse(gpu=GPU, use=Use.EXCLUSIVE, device="gpu-0", memory_mib=80000),),
    steps=(
        SetTimeSlice(gpu=GPU, interval=TimeSlice.LONG),
        WriteCdiSpec(name="gpuslice.io-claim_0000-whole", content='{"a":"ü"}\n'),
    ),
    devices=(
        PreparedDevice(
            requests=("gpu",), pool="node-a", device="gpu-0", cdi_ids=("gpuslice.io/claim=a",)
        ),
    ),
)
SHARE = Record(
    claim=ClaimRef("team-b", "notebook", "0000-share"),
    state=RecordState.RESERVED,
    boot_id="boot-1",
    uses=(
        GpuUse(
            gpu=GPU,
            use=Use.SHARED,
            device="gpu-0",
            share_id="share-1",
            compute_percent=25,
            memory_mib=6144,
            setting="MPS",
        ),
    ),
    steps=(
        EnsureShare(
            share=GpuShare(
                id="share-1",
                gpu=GPU,
                sharing=Sharing.MPS,
                compute_percent=25,
                memory_mib=6144,
                priority=1,
                qos=Qos.BEST_EFFORT,
                on_exceed=OnExceed.TERMINATE,
            )
        ),
    ),
    devices=(
        PreparedDevice(
            requests=("gpu",), pool="node-a", device="gpu-0", cdi_ids=("a", "b"), share_id="share-1"
        ),
    ),
)
RECORDS = {"whole": WHOLE, "share": SHARE}

text = st.text(max_size=12)
shares = st.builds(
    GpuShare,
    id=text, gpu=text.map(GpuUuid), sharing=st.sampled_from(Sharing),
    compute_percent=st.integers(), memory_mib=st.integers(), priority=st.integers(),
    qos=st.sampled_from(Qos), on_exceed=st.sampled_from(OnExceed),
)  # fmt: skip
steps = st.one_of(
    st.builds(EnsureShare, share=shares),
    st.builds(SetTimeSlice, gpu=text.map(GpuUuid), interval=st.sampled_from(TimeSlice)),
    st.builds(WriteCdiSpec, name=text, content=text),
)
uses = st.builds(
    GpuUse,
    gpu=text.map(GpuUuid), use=st.sampled_from(Use), device=text, share_id=st.none() | text,
    compute_percent=st.integers(), memory_mib=st.integers(), setting=text,
)  # fmt: skip
devices = st.builds(
    PreparedDevice,
    requests=st.lists(text).map(tuple), pool=text, device=text,
    cdi_ids=st.lists(text).map(tuple), share_id=st.none() | text,
)  # fmt: skip
records = st.builds(
    Record,
    claim=st.builds(ClaimRef, text, text, text), state=st.sampled_from(RecordState), boot_id=text,
    uses=st.lists(uses, max_size=3).map(tuple), steps=st.lists(steps, max_size=3).map(tuple),
    devices=st.lists(devices, max_size=3).map(tuple),
    pods=st.lists(st.builds(PodRef, text, text), max_size=2).map(tuple),
)  # fmt: skip


def changed(record: Record, *path: str | int, to: Any) -> bytes:
    """The stored form of a record with the value at `path` replaced."""
    body = json.loads(encode(record))
    place = body
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return json.dumps(body).encode()


@given(records)
def test_codec_gives_back_every_record(record: Record) -> None:
    assert decode(encode(record).encode()) == record


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_codec_writes_what_this_release_wrote(name: str) -> None:
    assert encode(RECORDS[name]) == (GOLDEN / f"0.1.0/{name}.json").read_text()


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("*/*.json")), ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_codec_reads_what_every_release_wrote(path: Path) -> None:
    assert decode(path.read_bytes()) == RECORDS[path.stem]


def test_codec_ignores_fields_that_a_newer_minor_release_added() -> None:
    body = json.loads(encode(SHARE))
    body["added"] = {"x": 1}
    body["uses"][0]["added"] = 1
    body["steps"][0]["ensureShare"]["added"] = None
    assert decode(json.dumps(body).encode()) == SHARE


def test_codec_reads_a_record_from_before_optional_fields() -> None:
    body = json.loads(encode(SHARE))
    for key in ("priority", "qos", "onExceed"):
        del body["steps"][0]["ensureShare"][key]
    del body["uses"][0]["setting"]
    del body["devices"][0]["shareId"]
    record = decode(json.dumps(body).encode())
    assert isinstance(record, Record)
    assert record.uses == (replace(SHARE.uses[0], setting=""),)
    assert record.devices == (replace(SHARE.devices[0], share_id=None),)
    (step,) = record.steps
    assert isinstance(step, EnsureShare)
    assert (step.share.priority, step.share.qos) == (0, Qos.GUARANTEED)
    assert step.share.on_exceed is OnExceed.WARN


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (changed(SHARE, "version", to="gpuslice.io/record/v99"), "v99"),
        (b'{"version": "v99"}', "v99"),
        (changed(SHARE, "state", to="Suspended"), "Suspended"),
        (changed(SHARE, "uses", 0, "use", to="Partition"), "Partition"),
        (changed(SHARE, "steps", to=[{"freeze": {}}]), "step freeze"),
        (changed(SHARE, "steps", 0, "ensureShare", "qos", to="Gold"), "Gold"),
        (changed(WHOLE, "steps", 0, "setTimeSlice", "interval", to="Huge"), "Huge"),
    ],
)
def test_codec_leaves_alone_what_a_newer_release_wrote(content: bytes, what: str) -> None:
    decoded = decode(content)
    assert isinstance(decoded, FromTheFuture)
    assert what in decoded.what


def test_codec_tells_what_a_newer_record_holds_when_it_kept_the_fields() -> None:
    body = json.loads(changed(SHARE, "version", to="gpuslice.io/record/v99"))
    body |= {"state": "Suspended", "steps": [{"freeze": {"pid": 7}}, *body["steps"]], "devices": 1}
    decoded = decode(json.dumps(body).encode())
    assert isinstance(decoded, FromTheFuture)
    assert decoded.held is not None
    assert (decoded.held.claim, decoded.held.boot_id) == (SHARE.claim, SHARE.boot_id)
    assert decoded.held.uses == SHARE.uses
    assert decoded.held.steps == tuple(
        step for step in SHARE.steps if isinstance(step, EnsureShare)
    )


@pytest.mark.parametrize(
    "content",
    [
        b'{"version": "v99"}',
        changed(SHARE, "uses", 0, "use", to="Partition"),
        changed(SHARE, "steps", 0, "ensureShare", "qos", to="Gold"),
    ],
)
def test_codec_admits_that_it_cannot_tell_what_a_newer_record_holds(content: bytes) -> None:
    decoded = decode(content)
    assert isinstance(decoded, FromTheFuture)
    assert decoded.held is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[1]",
        b"\xff\xfe\x00",
        b"{}",
        b'{"version":1}',
        b"[" * 100_000,
        encode(SHARE).encode()[:-10],
        changed(SHARE, "claim", to="x"),
        changed(SHARE, "claim", "uid", to=7),
        changed(SHARE, "uses", to={}),
        changed(SHARE, "uses", 0, "memoryMib", to="6Gi"),
        changed(SHARE, "uses", 0, "computePercent", to=True),
        changed(SHARE, "devices", 0, "cdiIds", to="a"),
        changed(WHOLE, "steps", 1, "writeCdiSpec", to={"name": "x"}),
    ],
)
def test_codec_knows_damage_and_says_what_it_is(content: bytes) -> None:
    decoded = decode(content)
    assert isinstance(decoded, Damaged)
    assert decoded.text


@given(st.binary(max_size=200))
def test_codec_raises_nothing_whatever_the_bytes(content: bytes) -> None:
    assert isinstance(decode(content), Damaged | FromTheFuture)


@given(records, st.data())
def test_codec_raises_nothing_when_a_file_was_cut(record: Record, data: st.DataObject) -> None:
    content = encode(record).encode()
    cut = content[: data.draw(st.integers(0, len(content) - 2))]
    assert isinstance(decode(cut), Damaged)
