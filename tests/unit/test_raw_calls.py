"""What calls of the program gpuslice-hook become, where no dump or restore is needed to see it."""

from __future__ import annotations

import json

import pytest

from dra_driver.checkpoint.raw_calls import RawCalls
from dra_driver.checkpoint.raw_line import Phase, RawHead, RawRequest
from dra_driver.model.checkpoint import HookAnswer, HookRequest, Target
from dra_driver.model.cuda import ProcessRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.owner import ProcessOwner

PROGRAM, RUNTIME = 60, 50
STATE = json.dumps({"id": "c1", "status": "stopped", "pid": 0}).encode()


class Asked:
    """A handler that notes what it is asked."""

    def __init__(self) -> None:
        self.requests: list[HookRequest] = []

    def call(self, request: HookRequest, deadline: Deadline) -> HookAnswer:
        self.requests.append(request)
        return HookAnswer()


def _request(phase: Phase, *there: ProcessOwner, claim: str | None = None) -> HookRequest:
    asked = Asked()
    calls = RawCalls(asked, {each.pid: each for each in there}.get)
    head = RawHead(phase=phase, claim=claim)
    calls.answer(RawRequest(head=head, body=STATE), PROGRAM, Deadline(30.0))
    (request,) = asked.requests
    return request


def test_restore_is_run_by_the_runtime_when_that_calls_the_program_as_its_hook() -> None:
    program = ProcessOwner(pid=PROGRAM, started=600, parent=RUNTIME)
    runtime = ProcessOwner(pid=RUNTIME, started=500, parent=1)

    request = _request(Phase.CREATE_RUNTIME, program, runtime)

    assert request.target.container_id == "c1"
    assert request.runner == ProcessRef(pid=RUNTIME, started=500)


@pytest.mark.parametrize("there", [(), (ProcessOwner(pid=PROGRAM, started=600, parent=RUNTIME),)])
def test_runner_is_not_known_when_the_caller_or_its_parent_has_ended(
    there: tuple[ProcessOwner, ...],
) -> None:
    assert _request(Phase.CREATE_RUNTIME, *there).runner is None


def test_hooks_of_several_claims_are_calls_of_their_own_when_one_container_has_them() -> None:
    first, again, second = (
        _request(Phase.CREATE_RUNTIME, claim=claim).operation_id for claim in ("a", "a", "b")
    )

    assert first == again != second


def test_runtime_that_removes_a_container_runs_no_restore() -> None:
    program = ProcessOwner(pid=PROGRAM, started=600, parent=RUNTIME)
    runtime = ProcessOwner(pid=RUNTIME, started=500, parent=1)

    assert _request(Phase.POSTSTOP, program, runtime).runner is None


def test_names_of_a_state_are_cut_when_they_are_longer_than_any() -> None:
    asked = Asked()
    annotations = {"io.kubernetes.cri.sandbox-name": "x" * 5000}
    body = json.dumps({"id": "c" * 5000, "annotations": annotations}).encode()
    head = RawHead(phase=Phase.CREATE_RUNTIME)
    RawCalls(asked, lambda _: None).answer(
        RawRequest(head=head, body=body), PROGRAM, Deadline(30.0)
    )
    (request,) = asked.requests
    assert request.target == Target(container_id="c" * 253, pod_name="x" * 253)
