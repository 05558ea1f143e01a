"""Plays cases in a control plane, all side by side, and tells where the answers differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.scheduler.compare import (
    ALLOCATED,
    FAILED,
    PANIC,
    REFUSED,
    Answer,
    StandIn,
    allocated,
)
from tests.scheduler.control_plane import CLAIMS, PODS, ControlPlane
from tests.scheduler.values import Case, Json

_ROUND_S = 120.0
_REASONS = {"Unschedulable": REFUSED, "SchedulerError": FAILED}


@dataclass(slots=True, kw_only=True)
class Report:
    """What came of it.

    Attributes:
        kinds: how many pods had an answer of each kind; those that would have killed the scheduler
            were not tried.
        differences: a document for each pod whose answers differ; `document` in it is what
            `dra_driver.sim.allocator.allocate_document` answers.
    """

    cases: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    differences: list[Json] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Node:
    """A case under way: its slices, the claims of pods that run, and the attempt in the air."""

    case: Case
    slices: tuple[Json, ...]
    running: dict[int, tuple[str, ...]] = field(default_factory=dict)
    claims: tuple[Json, ...] = ()
    document: Json = field(default_factory=dict)
    expected: tuple[Answer, ...] = ()


class Runner:
    """Plays cases once; each has a node, and the n-th pods of all cases come together."""

    def __init__(
        self, plane: ControlPlane, cases: tuple[Case, ...], *, say: Callable[[str], None]
    ) -> None:
        self._plane = plane
        self._admin = plane.admin
        self._cases = cases
        self._say = say
        self._stand_in = StandIn(plane.target)
        self._classes = plane.classes()
        self._report = Report(cases=len(cases))
        self._stored: dict[str, Json] = {}

    def run(self) -> Report:
        """Play all cases.

        Raises:
            NotReadyError: the scheduler ended, or did not answer; with its log.
        """
        nodes = [
            _Node(case=case, slices=self._plane.add_node(case.node, case.slices))
            for case in self._cases
        ]
        self._say(f"{len(nodes)} nodes are there")
        self._plane.start_scheduler()
        for number in range(max(len(case.pods) for case in self._cases)):
            active = [node for node in nodes if number < len(node.case.pods)]
            tried = [node for node in active if self._try(node, number)]
            answers = self._wait(number, tried)
            self._stored = {each["metadata"]["name"]: each for each in self._admin.list(CLAIMS)}
            for node in tried:
                self._judge(node, number, answers[node.case.node])
            # Whoever was refused would be tried again at the next change.
            self._admin.delete(PODS, fieldSelector="spec.nodeName=", gracePeriodSeconds="0")
            self._say(f"{len(tried)} pods were tried, as number {number + 1} of their nodes")
        return self._report

    def _try(self, node: _Node, number: int) -> bool:
        """Create a pod, unless that would kill the scheduler."""
        pod = node.case.pods[number]
        for other in pod.after:
            self._end(node, other)
        name = _pod_name(node, number)
        node.claims = tuple(
            self._plane.add_claim(f"{name}-{index}", devices)
            for index, devices in enumerate(pod.claims)
        )
        held = [self._stored[each] for names in node.running.values() for each in names]
        node.document = self._document(node, held)
        node.expected = self._stand_in.answers(node.document)
        if any(each.kind == PANIC for each in node.expected):
            self._report.kinds[PANIC] += 1
            if node.case.published:
                self._differ(node, number, Answer(kind=PANIC, text="a published pool allows it"))
            return False
        self._plane.add_pod(name, node=node.case.node, claims=_names(node.claims))
        return True

    def _document(self, node: _Node, held: list[Json]) -> Json:
        rules = self._plane.target.rules
        return {
            "minor": rules.minor,
            "consumable": rules.consumable,
            "taints": rules.taints,
            "node": node.case.node,
            "slices": [_bare(each) for each in node.slices],
            "classes": [_bare(each) for each in self._classes],
            "claims": [_bare(each) for each in node.claims],
            "others": [_bare(each) for each in held],
        }

    def _end(self, node: _Node, number: int) -> None:
        """End a pod, and do what the kubelet and kube-controller-manager do then.

        The scheduler has seen it before it sees claims that are created afterwards.
        """
        if number not in node.running:
            return
        for name in node.running.pop(number):
            self._plane.free_claim(name)
        self._admin.delete(f"{PODS}/{_pod_name(node, number)}", gracePeriodSeconds="0")

    def _wait(self, number: int, tried: list[_Node]) -> dict[str, Answer]:
        """Give the answer for each node."""
        open_nodes = {_pod_name(node, number): node.case.node for node in tried}
        answers: dict[str, Answer] = {}

        def problem() -> str:
            unbound = {
                each["metadata"]["name"]: each
                for each in self._admin.list(PODS, fieldSelector="spec.nodeName=")
            }
            for name, node in list(open_nodes.items()):
                answer = _answer_of(unbound[name]) if name in unbound else Answer(kind=ALLOCATED)
                if answer is not None:
                    answers[node] = answer
                    del open_nodes[name]
            return f"no answer yet for {', '.join(sorted(open_nodes)[:9])}" if open_nodes else ""

        self._plane.scheduler.wait_until(
            problem, waiting_for=f"answers for {len(tried)} pods", timeout_s=_ROUND_S
        )
        return answers

    def _judge(self, node: _Node, number: int, answer: Answer) -> None:
        if answer.kind == ALLOCATED:
            names = _names(node.claims)
            node.running[number] = names
            answer = allocated(self._stored[each]["status"]["allocation"] for each in names)
        self._report.kinds[answer.kind] += 1
        if not any(answer.same(each) for each in node.expected):
            self._differ(node, number, answer)

    def _differ(self, node: _Node, number: int, answer: Answer) -> None:
        self._report.differences.append(
            {
                "case": node.case.number,
                "pod": number,
                "published": node.case.published,
                "kubeScheduler": answer.json(),
                "standIn": [each.json() for each in node.expected],
                "document": node.document,
            }
        )


def _answer_of(pod: Json) -> Answer | None:
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") in _REASONS:
            return Answer(kind=_REASONS[condition["reason"]], text=condition.get("message", ""))
    return None


def _pod_name(node: _Node, number: int) -> str:
    return f"{node.case.node}-pod-{number}"


def _names(claims: tuple[Json, ...]) -> tuple[str, ...]:
    return tuple(each["metadata"]["name"] for each in claims)


def _bare(body: Json) -> Json:
    """Leave out what no allocation depends on."""
    metadata = {
        key: value for key, value in body["metadata"].items() if key in {"name", "namespace"}
    }
    bare = {"metadata": metadata, "spec": body["spec"]}
    if allocation := body.get("status", {}).get("allocation"):
        bare["status"] = {"allocation": allocation}
    return bare
