"""Finds the container that a call is about, and its claims."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from dra_driver import log
from dra_driver.checkpoint.told_pods import ToldPods
from dra_driver.checkpoint.world import HookWorld
from dra_driver.errors import AdapterError, NotFound
from dra_driver.model.checkpoint import HookPhase, HookRequest, Target, Trigger
from dra_driver.model.deadline import Deadline
from dra_driver.model.owner import PodClaims, ProcessOwner
from dra_driver.model.record import Record
from dra_driver.plan.container_claims import (
    container_ids,
    container_in,
    containers_with,
    places_of,
    pod_uid,
    records_doubtful,
    records_shown,
    records_told,
    sole_container,
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
        self._known: dict[str, PodClaims] = {}

    def find(self, request: HookRequest, deadline: Deadline) -> Found:
        """Give the container of a request.

        Raises:
            NotFound: there is no such pod or container, or it is of another pod than was named.
            AdapterError: it cannot be told.
        """
        target = self._by_names(request.target, deadline)
        # Before a restore, whatever is in the container's cgroup is CRIU.
        restored = request.phase is HookPhase.PRE_RESTORE
        if target.init is None and target.container_id and not restored:
            target = replace(target, init=self._world.containers.find(target.container_id))
        owner = self._owner(target)
        if owner is not None:
            _refuse_another_pod(request, owner)
            target = replace(
                target,
                container_id=target.container_id or owner.container_id or "",
                pod_uid=owner.pod_uid or target.pod_uid,
            )
        records = self._world.records()
        claims = _Claims(all=records, shown=records_shown(records, owner, request.claims))
        if not claims.shown and not (target.pod_uid and claims.asked):
            return Found(target=target)
        return self._told(target, claims, deadline)

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

    def _told(self, target: Target, claims: _Claims, deadline: Deadline) -> Found:
        """Add what the container's mounts do not show."""
        container = self._known.get(target.container_id) or self._told_ahead(target, claims)
        if container is None:
            patience = Deadline(min(deadline.at_s, self._world.clock.monotonic_s() + _NAMES_S))
            told = self._asked(claims, patience)
            doubtful = records_doubtful(claims.possible, told, claims.asked, target.pod_uid)
            container = self._judged(target, claims, told, doubtful, patience)
            if container is None:
                # Rather one claim too many than a dump that forgets one.
                return Found(target=target, records=_by_uid((*claims.shown, *doubtful)))
        self._remember(target.container_id, container)
        full = replace(
            target,
            pod_namespace=container.namespace,
            pod_name=container.pod,
            container_name=container.container,
        )
        own = records_told(claims.all, container)
        return Found(target=full, records=_by_uid((*own, *claims.shown)))

    def _told_ahead(self, target: Target, claims: _Claims) -> PodClaims | None:
        if target.init is None:
            return None
        told = self._told_pods.since(target.init)
        return sole_container(told, claims.all, claims.shown, target.pod_uid)

    def _asked(self, claims: _Claims, patience: Deadline) -> tuple[PodClaims, ...]:
        try:
            return self._told_pods.ask(patience)
        except AdapterError as error:
            if not claims.shown:
                raise
            _log.info("The kubelet does not tell of a container", cause=str(error))
            return ()

    def _judged(
        self,
        target: Target,
        claims: _Claims,
        told: tuple[PodClaims, ...],
        doubtful: tuple[Record, ...],
        patience: Deadline,
    ) -> PodClaims | None:
        """The target among containers that have its claims, or may have them."""
        sole = sole_container(told, claims.all, claims.shown, target.pod_uid)
        if sole is not None:
            return sole
        having = containers_with(told, claims.asked)
        named = places_of(claims.all, target.pod_uid)
        if claims.shown and len(having) == 1 and not named:
            return having[0]
        if not having and not doubtful:
            return None
        places = dict.fromkeys((*named, *((each.namespace, each.pod) for each in having)))
        for namespace, name in tuple(places)[:_CANDIDATES]:
            with suppress(AdapterError):
                pod = self._world.pod_reader.get_pod(namespace, name, patience)
                found = container_in(
                    pod,
                    claims.all,
                    having,
                    uid=target.pod_uid,
                    container_id=target.container_id,
                )
                if found is not None:
                    return found
        return None

    def _remember(self, container_id: str, container: PodClaims) -> None:
        if not container_id or container_id in self._known:
            return
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[container_id] = container


def _refuse_another_pod(request: HookRequest, owner: ProcessOwner) -> None:
    named, known = request.target.pod_uid, owner.pod_uid
    if request.trigger is Trigger.CONTROLLER and named and known and named != known:
        raise NotFound(
            f"the container is of pod {known}, not of {named}: leave target.pod_uid out, or name"
            " another container"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims:
    """Records that a container's claims may be among.

    Attributes:
        all: of this node.
        shown: those that its mounts show.
    """

    all: tuple[Record, ...]
    shown: tuple[Record, ...]

    @property
    def asked(self) -> tuple[Record, ...]:
        """Those by which the kubelet can tell it."""
        return self.shown or unmarked(self.all)

    @property
    def possible(self) -> tuple[Record, ...]:
        """Those that it may have besides; a container with a marked claim shows a mark."""
        return self.all if self.shown else unmarked(self.all)


def _by_uid(records: Iterable[Record]) -> tuple[Record, ...]:
    found = {each.claim.uid: each for each in records}
    return tuple(found[uid] for uid in sorted(found))
