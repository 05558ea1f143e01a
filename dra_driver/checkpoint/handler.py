"""What the hook answers: one handler behind both edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from dra_driver import log
from dra_driver.checkpoint.engine import Engine, digest_of
from dra_driver.checkpoint.finder import Finder
from dra_driver.checkpoint.post import PostCalls
from dra_driver.checkpoint.pre_checkpoint import PreCheckpoint
from dra_driver.checkpoint.pre_restore import PreRestore
from dra_driver.checkpoint.told_pods import ToldPods
from dra_driver.errors import AdapterError, NotFound
from dra_driver.model.checkpoint import (
    Code,
    HookAnswer,
    HookPhase,
    HookRequest,
    Operation,
    Trigger,
)
from dra_driver.model.deadline import Deadline
from dra_driver.plan.operation_values import Aborted
from dra_driver.plan.operations import can_abort

_log = log.get(__name__)


class Handler:
    """Answers calls from many threads; one at a time about one container.

    Args:
        engine: the operations.
        told_pods: what the kubelet tells.
        kick: lets the keeper look at once at what is pending.
    """

    def __init__(self, engine: Engine, told_pods: ToldPods, *, kick: Callable[[], None]) -> None:
        self._engine = engine
        self._world = engine.world
        self._kick = kick
        self._finder = Finder(engine.world, told_pods)
        self._pre_checkpoint = PreCheckpoint(engine)
        self._pre_restore = PreRestore(engine)
        self._post = PostCalls(engine, self._finder)

    def call(self, request: HookRequest, deadline: Deadline) -> HookAnswer:
        """Answer a call; whatever happens, nothing is raised."""
        started_s = self._world.clock.monotonic_s()
        with log.context(hook=request.phase.value, operation=request.operation_id):
            answer = self._guarded(lambda: self._answer(request, deadline))
        seconds = self._world.clock.monotonic_s() - started_s
        phase = request.phase.value
        self._world.recorder.observe("hook_call_seconds", seconds, phase=phase)
        self._world.recorder.count("hook_calls_total", phase=phase, code=answer.code.value)
        self._kick()
        return answer

    def get(self, operation_id: str) -> HookAnswer:
        """NOT_FOUND where there is no such operation."""
        return self._guarded(lambda: self._known(operation_id))

    def operations(self) -> tuple[Operation, ...]:
        """All by start time, then id. Raises AdapterError."""
        return self._engine.table.all()

    def abort(
        self, operation_id: str, deadline: Deadline, *, acknowledge: bool = False
    ) -> HookAnswer:
        """Let an operation be undone; one that has ended is answered as it is.

        Args:
            operation_id: of the operation.
            deadline: for whoever works on it to let go.
            acknowledge: let its broken GPU state be of no account, where it ended so.
        """
        answer = self._guarded(lambda: self._abort(operation_id, deadline, acknowledge=acknowledge))
        self._kick()
        return answer

    def _answer(self, request: HookRequest, deadline: Deadline) -> HookAnswer:
        match request.phase:
            case HookPhase.PRE_CHECKPOINT | HookPhase.PRE_RESTORE:
                return self._admitted(request, deadline)
            case HookPhase.POST_CHECKPOINT | HookPhase.POST_RESTORE:
                # Several calls of a runtime mean the same.
                named = request.trigger is Trigger.CONTROLLER
                repeated = self._repeated(request) if named else None
                return repeated or self._post.answer(request, deadline)
            case _ as never:
                assert_never(never)

    def _admitted(self, request: HookRequest, deadline: Deadline) -> HookAnswer:
        found = self._finder.find(request, deadline)
        restore = request.phase is HookPhase.PRE_RESTORE
        # A restore may be announced before there is a container, so all of them queue.
        key = "all restores" if restore else f"container {found.target.container_id}"
        with self._engine.locks.held(key, self._left_s(deadline)) as got:
            if not got:
                return _busy()
            repeated = self._repeated(request)
            if repeated is not None:
                return repeated
            if found.records and self._left_s(deadline) <= 0:
                # Whoever asked has left: nothing may be begun that nobody would end.
                return _busy()
            if restore:
                answer = self._pre_restore.answer(request, found)
            else:
                answer = self._pre_checkpoint.answer(request, found, deadline)
        with self._engine.locks.held(request.operation_id, self._left_s(deadline)) as got:
            return self._engine.keep(answer, request) if got else answer

    def _repeated(self, request: HookRequest) -> HookAnswer | None:
        known = self._engine.table.get(request.operation_id)
        if known is None:
            return None
        if known.kind is not request.phase.kind:
            text = f"operation {known.id} is a {known.kind.lower()}: choose another id"
            return HookAnswer(code=Code.INVALID_ARGUMENT, text=text)
        for each in known.answers:
            if each.phase is not request.phase:
                continue
            if each.digest != digest_of(request):
                text = f"operation {known.id} was begun with another request: choose another id"
                return HookAnswer(code=Code.INVALID_ARGUMENT, text=text)
            return HookAnswer(code=each.code, text=each.text, operation=known, replayed=True)
        return None

    def _known(self, operation_id: str) -> HookAnswer:
        operation = self._engine.table.get(operation_id)
        if operation is None:
            text = f"there is no operation {operation_id}, or it is forgotten"
            return HookAnswer(code=Code.NOT_FOUND, text=text)
        return HookAnswer(operation=operation)

    def _abort(self, operation_id: str, deadline: Deadline, *, acknowledge: bool) -> HookAnswer:
        with self._engine.locks.held(operation_id, self._left_s(deadline)) as got:
            found = self._known(operation_id)
            operation = found.operation
            if operation is None or (operation.state.final and not acknowledge):
                return found
            if not got:
                return _busy()
            if not operation.state.final and not can_abort(operation):
                text = f"operation {operation_id} is {operation.state}, too late to undo it"
                return HookAnswer(code=Code.FAILED_PRECONDITION, text=text, operation=operation)
            event = Aborted(text="it was aborted", acknowledge=acknowledge)
            return HookAnswer(operation=self._engine.advance(operation, event, now=False))

    def _guarded(self, work: Callable[[], HookAnswer]) -> HookAnswer:
        try:
            return work()
        except NotFound as error:
            return HookAnswer(code=Code.NOT_FOUND, text=str(error))
        except AdapterError as error:
            _log.warning("A call of the hook failed", error=str(error))
            return HookAnswer(code=Code.UNAVAILABLE, text=str(error))
        except Exception as error:  # noqa: BLE001 - the runtime must get an answer, whatever it is
            _log.exception("A call of the hook failed because of a bug")
            text = f"a bug in the driver ({type(error).__name__}: {error}); its log has the details"
            return HookAnswer(code=Code.INTERNAL, text=text)

    def _left_s(self, deadline: Deadline) -> float:
        return deadline.remaining_s(self._world.clock.monotonic_s())


def _busy() -> HookAnswer:
    return HookAnswer(code=Code.UNAVAILABLE, text="another call is about it: try again")
