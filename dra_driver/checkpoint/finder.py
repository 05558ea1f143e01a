"""Finds the container that a call is about, and its claims."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from dra_driver import log
from dra_driver.checkpoint.told_pods import ToldPods
from dra_driver.checkpoint.world import HookWorld
from dra_driver.errors import AdapterError, NotFound
from dra_driver.model.checkpoint import HookPhase, HookRequest, Target
from dra_driver.model.deadline import Deadline
from dra_driver.model.owner import PodClaims, ProcessOwner
from dra_driver.model.record import Record
from dra_driver.plan.container_claims import (
    container_ids,
    containers_with,
    pod_uid,
    records_shown,
    records_told,
    unmarked,
)

_log = log.get(__name__)

_CANDIDATES = 8
"""Pods that share a claim and are asked for at most; it is about their names alone."""
_NAMES_S = 1.0
_REMEMBERED = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A container; without records it has no claim of ours."""

    target: Target
    records: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """What was told of a container, once and for its whole life."""

    container: PodClaims
    pod_uid: str


class Finder:
    """Names come from the kubelet and the API server, which may be away: they are not needed.

    A container shows the mark of one claim alone, so the kubelet is asked for others, too.

    Args:
        world: of the node.
        told_pods: what the kubelet tells.
    """

    def __init__(self, world: HookWorld, told_pods: ToldPods) -> None:
        self._world = world
        self._told_pods = told_pods
        self._named: dict[str, _Named] = {}

    def find(self, request: HookRequest, deadline: Deadline) -> Found:
        """Give the container of a request.

        Raises:
            NotFound: there is no such pod or container.
            AdapterError: it cannot be told.
        """
        target = self._by_names(request.target, deadline)
        # Before a restore, whatever is in the container's cgroup is CRIU.
        restored = request.phase is HookPhase.PRE_RESTORE
        if target.init is None and target.container_id and not restored:
            target = replace(target, init=self._world.containers.find(target.container_id))
        owner = self._owner(target)
        if owner is not None:
            target = replace(
                target,
                container_id=target.container_id or owner.container_id or "",
                pod_uid=target.pod_uid or owner.pod_uid or "",
            )
        records = self._world.records()
        shown = records_shown(records, owner, request.claims)
        asked = shown or (unmarked(records) if target.pod_uid else ())
        if not asked:
            return Found(target=target)
        return self._told(target, records=records, shown=shown, asked=asked, deadline=deadline)

    def _by_names(self, target: Target, deadline: Deadline) -> Target:
        if target.container_id or target.init is not None or not target.pod_name:
            return target
        namespace, name = target.pod_namespace, target.pod_name
        pod = self._world.pod_reader.get_pod(namespace, name, deadline)
        ids = container_ids(pod)
        if not target.container_name and len(ids) == 1:
            target = replace(target, container_name=next(iter(ids)))
        found = ids.get(target.container_name)
        if found is None:
            named = f"no running container {target.container_name!r}"
            which = named if target.container_name else "several containers: name one"
            raise NotFound(f"pod {namespace}/{name} has {which} (it has {', '.join(sorted(ids))})")
        return replace(target, container_id=found, pod_uid=pod_uid(pod))

    def _owner(self, target: Target) -> ProcessOwner | None:
        if target.init is None:
            return None
        owner = self._world.owners.owner(target.init.pid)
        if owner is None or owner.started != target.init.started:
            return None
        return owner

    def _told(
        self,
        target: Target,
        *,
        records: tuple[Record, ...],
        shown: tuple[Record, ...],
        asked: tuple[Record, ...],
        deadline: Deadline,
    ) -> Found:
        named = self._named.get(target.container_id) or self._told_ahead(target, shown)
        if named is None:
            patience = Deadline(min(deadline.at_s, self._world.clock.monotonic_s() + _NAMES_S))
            try:
                told = containers_with(self._told_pods.ask(patience), asked)
            except AdapterError as error:
                if not shown:
                    raise
                _log.info("The kubelet does not tell of a container", cause=str(error))
                return Found(target=target, records=shown)
            named = _in_its_pod(target, told, shown) or next(
                self._own(target, told, patience, sure=bool(shown)), None
            )
            if named is None:
                return Found(target=target, records=shown)
            self._remember(target.container_id, named)
        container = named.container
        full = replace(
            target,
            pod_namespace=container.namespace,
            pod_name=container.pod,
            pod_uid=target.pod_uid or named.pod_uid,
            container_name=container.container,
        )
        listed = {each.claim.uid: each for each in (*records_told(records, container), *shown)}
        return Found(target=full, records=tuple(listed[uid] for uid in sorted(listed)))

    def _told_ahead(self, target: Target, shown: tuple[Record, ...]) -> _Named | None:
        """What was told since the container runs, where that leaves no doubt about which it is."""
        if target.init is None:
            return None
        told = containers_with(self._told_pods.since(target.init), shown)
        return _in_its_pod(target, told, shown)

    def _remember(self, container_id: str, named: _Named) -> None:
        if len(self._named) >= _REMEMBERED:
            self._named.clear()
        if container_id:
            self._named[container_id] = named

    def _own(
        self, target: Target, told: tuple[PodClaims, ...], patience: Deadline, *, sure: bool
    ) -> Iterator[_Named]:
        """The target among containers that have its claims; `sure`: it is one of them."""
        if sure and len(told) == 1:
            yield _Named(container=told[0], pod_uid="")
            return
        for each in told[:_CANDIDATES]:
            with suppress(AdapterError):
                pod = self._world.pod_reader.get_pod(each.namespace, each.pod, patience)
                same = container_ids(pod).get(each.container) in (None, target.container_id)
                if pod_uid(pod) == target.pod_uid and same:
                    yield _Named(container=each, pod_uid=pod_uid(pod))


def _in_its_pod(
    target: Target, told: tuple[PodClaims, ...], shown: tuple[Record, ...]
) -> _Named | None:
    """The only one of these containers whose pod is the target's, as its claims name pods."""
    pods = {
        (record.claim.namespace, pod.name)
        for record in shown
        for pod in record.pods
        if pod.uid == target.pod_uid
    }
    own = [each for each in told if (each.namespace, each.pod) in pods]
    return _Named(container=own[0], pod_uid=target.pod_uid) if len(own) == 1 else None
