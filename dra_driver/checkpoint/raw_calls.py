"""From a call of gpuslice-hook to a request, and from the answer to what the program reads.

The runtime's calls have no id of an operation: one is made of what stays the same from the first to
the last of them and is another in every try. They join whatever is under way on the container.

Sources: CRIU's criu/action-scripts.c and order of calls; OCI runtime spec, "State"; annotations of
containerd and CRI-O. At restore the program runs in the container's own cgroup.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, Protocol

from dra_driver import log
from dra_driver.checkpoint.raw_line import OK, Marker, Phase, RawHead, RawRequest, Role, veto
from dra_driver.errors import AdapterError
from dra_driver.model.checkpoint import (
    Code,
    HookAnswer,
    HookPhase,
    HookRequest,
    Kind,
    Outcome,
    Target,
    Trigger,
)
from dra_driver.model.cuda import ProcessRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.owner import ProcessOwner

_VETOES: Final = frozenset(
    (Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED, Code.ABORTED, Code.DATA_LOSS)
)
"""Codes that stop the runtime wherever it asks."""

_NAME_MAX: Final = 253
"""Characters of the longest names that Kubernetes has; whatever is longer is none of them."""

_POD_KEYS: Final = {
    "pod_uid": ("io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"),
    "pod_namespace": ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"),
    "pod_name": ("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"),
}


_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class _Meaning:
    phase: HookPhase
    outcome: Outcome = Outcome.UNKNOWN
    text: str = ""


_RESTORED = _Meaning(HookPhase.POST_RESTORE, Outcome.SUCCEEDED)
_MEANINGS: Final = {
    Phase.PRE_DUMP: _Meaning(HookPhase.PRE_CHECKPOINT),
    Phase.POST_DUMP: _Meaning(HookPhase.POST_CHECKPOINT, Outcome.SUCCEEDED),
    # Comes after post-dump, or instead of it; then the dump has failed.
    Phase.NETWORK_UNLOCK: _Meaning(
        HookPhase.POST_CHECKPOINT, Outcome.FAILED, "CRIU could not take the dump"
    ),
    Phase.PRE_RESTORE: _Meaning(HookPhase.PRE_RESTORE),
    Phase.POST_RESTORE: _RESTORED,
    Phase.PRE_RESUME: _RESTORED,
    Phase.POST_RESUME: _RESTORED,
    Phase.CREATE_RUNTIME: _Meaning(HookPhase.PRE_RESTORE),
    Phase.POSTSTOP: _Meaning(
        HookPhase.POST_RESTORE, Outcome.FAILED, "the container stopped before it was restored"
    ),
}
"""What the phases mean; nothing is done in the others."""


class Calls(Protocol):
    def call(self, request: HookRequest, deadline: Deadline) -> HookAnswer: ...


class RawCalls:
    """Answers calls of the program.

    Args:
        handler: of the hook.
        owner: as `ProcessOwners.owner`.
    """

    def __init__(self, handler: Calls, owner: Callable[[int], ProcessOwner | None]) -> None:
        self._handler = handler
        self._owner = owner

    def answer(self, raw: RawRequest, peer_pid: int, deadline: Deadline) -> bytes:
        """Give the bytes to send; `peer_pid` is the program's."""
        try:
            request = self._request(raw, peer_pid)
        except AdapterError as error:
            return _said(raw.head, HookAnswer(code=Code.UNAVAILABLE, text=str(error)))
        if request is None:
            return OK
        return _said(raw.head, self._handler.call(request, deadline))

    def unheard(self, raw: RawRequest, peer_pid: int, deadline: Deadline) -> None:
        """Undo what was begun for a call that went on by itself, where it is stopped by that."""
        try:
            request = self._request(raw, peer_pid) if closes(raw.head) else None
        except AdapterError as error:
            _log.warning("Cannot undo what nobody waited for", error=str(error))
            return
        if request is None:
            return
        dump = request.phase.kind is Kind.CHECKPOINT
        failed = replace(
            request,
            phase=HookPhase.POST_CHECKPOINT if dump else HookPhase.POST_RESTORE,
            outcome=Outcome.FAILED,
            outcome_text="the runtime did not wait for the driver's answer",
        )
        self._handler.call(failed, deadline)

    def _request(self, raw: RawRequest, peer_pid: int) -> HookRequest | None:
        """None: there is nothing to do in this phase, or the caller is no container's."""
        meaning = _MEANINGS.get(raw.head.phase)
        if meaning is None:
            return None
        if raw.head.phase.role is Role.OCI:
            return self._of_oci(raw, peer_pid, meaning)
        # At a dump the program runs beside CRIU, at a restore in the container's cgroup.
        in_container = meaning.phase.kind is Kind.RESTORE
        return self._of_criu(raw.head, peer_pid if in_container else None, meaning)

    def _of_criu(
        self,
        head: RawHead,
        peer_pid: int | None,
        meaning: _Meaning,
    ) -> HookRequest | None:
        init = _ref(head.pid, head.started)
        pid = init.pid if init is not None else peer_pid
        owner = self._owner(pid) if pid else None
        if owner is None or owner.container_id is None:
            return None
        runner = _ref(head.criu, head.criu_started)
        target = Target(container_id=owner.container_id, pod_uid=owner.pod_uid or "", init=init)
        return HookRequest(
            operation_id=_id(meaning.phase.kind, owner.container_id, runner or init),
            phase=meaning.phase,
            trigger=Trigger.CRIU_SCRIPT,
            target=target,
            runner=runner,
            outcome=meaning.outcome,
            outcome_text=meaning.text,
        )

    def _of_oci(
        self,
        raw: RawRequest,
        peer_pid: int,
        meaning: _Meaning,
    ) -> HookRequest | None:
        state = _state(raw.body)
        container_id, pid = str(state.get("id", ""))[:_NAME_MAX], state.get("pid")
        owner = self._owner(pid) if isinstance(pid, int) and pid > 0 else None
        init = ProcessRef(pid=owner.pid, started=owner.started) if owner is not None else None
        claim = raw.head.claim
        if not container_id and claim is None:
            return None
        return HookRequest(
            # A container of several claims has the hooks of each: these are calls of their own.
            operation_id=_id(meaning.phase.kind, f"{container_id}|{claim or ''}", init),
            phase=meaning.phase,
            trigger=Trigger.OCI_HOOK,
            target=Target(container_id=container_id, init=init, **_pod(state)),
            claims=(claim,) if claim is not None else (),
            runner=self._runtime(peer_pid) if raw.head.phase is Phase.CREATE_RUNTIME else None,
            outcome=meaning.outcome,
            outcome_text=meaning.text,
        )

    def _runtime(self, peer_pid: int) -> ProcessRef | None:
        """The program's parent: runc calls it, and ends when the container is restored, or not.

        With its end a restore is over of whose later phases nobody heard.
        """
        program = self._owner(peer_pid)
        parent = self._owner(program.parent) if program is not None and program.parent else None
        return ProcessRef(pid=parent.pid, started=parent.started) if parent is not None else None


def closes(head: RawHead) -> bool:
    """Whether a container must not go on because we cannot tell what would become of its GPU.

    That is where the program itself closes while we are away. Whatever else is wrong with us must
    not keep pods from their work.
    """
    match head.phase:
        case Phase.PRE_DUMP:
            return head.marker is not Marker.NO
        case Phase.CREATE_RUNTIME:
            return True
        case _:
            return False


def _said(head: RawHead, answer: HookAnswer) -> bytes:
    stops = answer.code in _VETOES or (answer.code is not Code.OK and closes(head))
    return veto(answer.text) if stops else OK


def _ref(pid: int | None, started: int | None) -> ProcessRef | None:
    return ProcessRef(pid=pid, started=started) if pid and started is not None else None


def _id(kind: Kind, container_id: str, process: ProcessRef | None) -> str:
    run = f"{process.pid}:{process.started}" if process is not None else ""
    digest = sha256(f"{kind}|{container_id}|{run}".encode()).hexdigest()
    return f"{kind.lower()}-{digest[:32]}"


def _state(body: bytes) -> Mapping[str, Any]:
    """The runtime's state; empty where it is none, or was cut."""
    try:
        state = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def _pod(state: Mapping[str, Any]) -> dict[str, str]:
    annotations = state.get("annotations")
    known = annotations if isinstance(annotations, dict) else {}
    return {
        field: next((str(known[key])[:_NAME_MAX] for key in keys if known.get(key)), "")
        for field, keys in _POD_KEYS.items()
    }
