"""What is made of a kubelet's answer to a checkpoint."""

from __future__ import annotations

import json

import pytest

from dra_driver.plan.kubelet_answers import Asked, NotTaken, Taken, judge_answer

ASKED = Asked(node="node-a", namespace="team", pod="trainer", container="main", timeout_s=60)
OF_KUBELET = (
    b"Forbidden (user=kube-apiserver, verb=create, resource=nodes, "
    b"subresource(s)=[checkpoint proxy])"
)
FAILED = "checkpointing of team/trainer/main failed ({})"


def status(message: str) -> bytes:
    return json.dumps({"kind": "Status", "message": message}).encode()


def test_answer_with_an_archive_is_a_checkpoint() -> None:
    answer = judge_answer(ASKED, 200, b'{"items":["/var/lib/kubelet/checkpoints/a.tar"]}')
    assert answer == Taken(archive="/var/lib/kubelet/checkpoints/a.tar")


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b'{"items":[]}', b'{"items":["a","b"]}'])
def test_answer_without_one_archive_is_none(content: bytes) -> None:
    answer = judge_answer(ASKED, 200, content)
    assert isinstance(answer, NotTaken)
    assert answer.tried
    assert "not where to" in answer.text


@pytest.mark.parametrize(
    ("code", "content", "texts", "tried"),
    [
        (
            403,
            status('nodes "node-a" is forbidden: User "jane"'),
            ["'create nodes/proxy'", "gpuslice-checkpointer", "checkpoint-rights", "jane"],
            False,
        ),
        (
            403,
            OF_KUBELET,
            ["'kube-apiserver'", "'create nodes/checkpoint'", "ClusterRole gpuslice-checkpoint ("],
            False,
        ),
        (403, b"Forbidden", ["'kube-apiserver-kubelet-client'"], False),
        (401, b"Unauthorized", ["--kubelet-client-certificate"], False),
        (401, status("Unauthorized"), ["log in again"], False),
        (404, b"404 page not found", ["feature gate ContainerCheckpoint"], False),
        (404, b"pod does not exist", ["(any more): pod does not exist"], False),
        (404, status('nodes "node-a" not found'), ['nodes "node-a" not found'], False),
        (
            500,
            FAILED.format("rpc error: code = DeadlineExceeded desc = context deadline").encode(),
            ["longer than 60 s", "ctr -n k8s.io tasks resume", "--timeout"],
            True,
        ),
        (
            500,
            FAILED.format("rpc error: code = Unimplemented desc = unknown method").encode(),
            ["containerd 2.1 or later"],
            True,
        ),
        (500, FAILED.format("criu: executable file not found").encode(), ["CRIU 4.1"], True),
        (
            500,
            FAILED.format("criu failed: type NOTIFY errno 0").encode(),
            ["failed on node node-a: ", "type NOTIFY"],
            True,
        ),
        (500, status("dial tcp: refused"), ["check that the API server reaches"], True),
        (503, b"<html>", ["503 <html>"], True),
        (504, b"\xff", ["504"], True),
    ],
)
def test_refusal_says_why_and_what_to_do(
    code: int, content: bytes, texts: list[str], *, tried: bool
) -> None:
    answer = judge_answer(ASKED, code, content)
    assert isinstance(answer, NotTaken)
    assert answer.tried is tried
    for text in texts:
        assert text in answer.text
    assert "\n" not in answer.text


def test_long_answer_is_cut() -> None:
    answer = judge_answer(ASKED, 500, b"x" * 100_000)
    assert isinstance(answer, NotTaken)
    assert len(answer.text) < 1000
