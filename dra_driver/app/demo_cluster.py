"""What a control plane and a kubelet do for pods with claims, one step at a time.

A controller makes claims from templates, a scheduler allocates them, the kubelet lets the driver
prepare them. No container is started.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from dra_driver.app.demo_values import DRIVER, NAMESPACE, NODE, DemoError, Json, PodOutcome
from dra_driver.errors import GpusliceError
from dra_driver.model.claim import ClaimRef
from dra_driver.plan.allocate import Refused
from dra_driver.plan.allocate_parse import allocation_results
from dra_driver.sim.allocator import Allocator
from dra_driver.sim.api_server import SimApiServer, StatusError
from dra_driver.sim.kubelet import FakeKubelet
from dra_driver.sim.kubelet_values import KubeletClaim, KubeletError

_PLURALS = {
    "DeviceClass": "deviceclasses",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "Pod": "pods",
}
_CLUSTER_WIDE = frozenset({"DeviceClass"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A pod that the kubelet has to unprepare when it goes."""

    uid: str
    claims: tuple[str, ...]


class DemoCluster:
    """Pods of one namespace on one node."""

    def __init__(self, api: SimApiServer, kubelet: FakeKubelet, allocator: Allocator) -> None:
        self._api = api
        self._kubelet = kubelet
        self._allocator = allocator
        self._known: dict[str, _Known] = {}
        self._outcomes: dict[str, PodOutcome] = {}

    def create(self, documents: Iterable[Json]) -> tuple[str, ...]:
        """Create objects, a Job as its pods; gives the names of the pods."""
        pods = []
        for document in documents:
            for body in _pods_of(document) if document["kind"] == "Job" else (document,):
                kind = str(body["kind"])
                namespace = "" if kind in _CLUSTER_WIDE else NAMESPACE
                self._api.create(_PLURALS[kind], deepcopy(dict(body)), namespace=namespace)
                if kind == "Pod":
                    pods.append(str(body["metadata"]["name"]))
        return tuple(pods)

    def start(self, name: str) -> PodOutcome:
        """Bring a pod as far as it comes now; the outcome also stands in its status and Events."""
        pod = self._api.get("pods", name, namespace=NAMESPACE)
        known = self._known[name] = _Known(uid=pod["metadata"]["uid"], claims=())
        try:
            claims = self._claims(pod)
        except StatusError as error:
            outcome = self._outcome(name, "Pending", "FailedResourceClaimCreation", str(error))
        else:
            names = tuple(claim["metadata"]["name"] for claim in claims)
            known = self._known[name] = replace(known, claims=names)
            outcome = self._schedule(name, claims) or self._prepare(name, known)
        self._report(pod, outcome)
        return outcome

    def prepare_again(self) -> None:
        """Ask for every running pod's claims once more, as a kubelet that was restarted does.

        Raises:
            DemoError: the driver refuses one that it had prepared.
        """
        for name, outcome in self._outcomes.items():
            if outcome.running:
                again = self._prepare(name, self._known[name])
                if not again.running:
                    raise DemoError(f"pod {name} was running and is refused now: {again.message}")

    def delete(self, name: str) -> None:
        """Delete a pod and what was made for it.

        Raises:
            KubeletError: the driver did not unprepare its claims.
        """
        self._forget(name)
        self._api.delete("pods", name, namespace=NAMESPACE)

    def remove(self, documents: Iterable[Json]) -> None:
        """Delete the objects that `create` made of the same documents."""
        for body in documents:
            name = str(body["metadata"]["name"])
            if body["kind"] == "Pod":
                self.delete(name)
            else:
                self._api.delete(_PLURALS[str(body["kind"])], name, namespace=NAMESPACE)

    def outcomes(self) -> tuple[PodOutcome, ...]:
        """Of all pods there are, in the order in which they were started."""
        return tuple(self._outcomes.values())

    def follow(self) -> tuple[PodOutcome, ...]:
        """Start pods that others created or that have to wait, and let go of those deleted.

        Gives the outcomes that are new.
        """
        there = {each["metadata"]["name"] for each in self._api.list("pods", namespace=NAMESPACE)}
        for name in sorted(set(self._known) - there):
            with suppress(KubeletError):  # it is tried again, as the kubelet does
                self._forget(name)
        news = []
        for name in sorted(there):
            before = self._outcomes.get(name)
            if before is None or not before.running:
                outcome = self.start(name)
                if before is None or (before.phase, before.message) != (
                    outcome.phase,
                    outcome.message,
                ):
                    news.append(outcome)
        return tuple(news)

    def claims(self) -> tuple[Json, ...]:
        return self._api.list("resourceclaims", namespace=NAMESPACE)

    def refs(self, name: str) -> tuple[ClaimRef, ...]:
        """Claims of a pod that was started."""
        return tuple(_ref(self._claim(claim)) for claim in self._known[name].claims)

    def _claims(self, pod: Json) -> list[Json]:
        """A pod's claims, made from their templates where they are not there yet."""
        owner, claims = pod["metadata"], []
        existing = {each["metadata"]["name"] for each in self.claims()}
        for entry in pod["spec"].get("resourceClaims") or ():
            if entry.get("resourceClaimName"):
                claims.append(self._claim(entry["resourceClaimName"]))
                continue
            name = f"{owner['name']}-{entry['name']}"
            if name not in existing:
                self._make_claim(name, entry["resourceClaimTemplateName"], owner)
            claims.append(self._claim(name))
        return claims

    def _make_claim(self, name: str, template: str, owner: Json) -> None:
        found = self._api.get("resourceclaimtemplates", template, namespace=NAMESPACE)
        reference = {"apiVersion": "v1", "kind": "Pod", "name": owner["name"], "uid": owner["uid"]}
        metadata = {"name": name, "ownerReferences": [{**reference, "controller": True}]}
        body = {"metadata": metadata, "spec": found["spec"]["spec"]}
        self._api.create("resourceclaims", body, namespace=NAMESPACE)

    def _schedule(self, name: str, claims: list[Json]) -> PodOutcome | None:
        """Allocate what is not allocated yet; the outcome where that cannot be done."""
        missing = [claim for claim in claims if not allocation_results(claim)]
        try:
            answer = self._allocator.allocate(
                missing,
                node=NODE,
                slices=self._api.list("resourceslices"),
                classes=self._api.list("deviceclasses"),
                others=self.claims(),
            )
        except GpusliceError as error:
            return self._outcome(name, "Pending", "FailedScheduling", str(error))
        if isinstance(answer, Refused):
            text = f"0/1 nodes are available: 1 {answer.reason}."
            return self._outcome(name, "Pending", "FailedScheduling", text)
        pod = {"resource": "pods", "name": name, "uid": self._known[name].uid}
        for claim, allocation in zip(missing, answer.allocations, strict=True):
            status = {"allocation": allocation, "reservedFor": [pod]}
            self._api.replace_status(
                "resourceclaims", {**claim, "status": status}, namespace=NAMESPACE
            )
        return None

    def _prepare(self, name: str, known: _Known) -> PodOutcome:
        claims = tuple(map(self._claim, known.claims))
        try:
            self._kubelet.prepare(known.uid, tuple(map(_kubelet_claim, claims)))
        except KubeletError as error:
            text = f"Failed to prepare dynamic resources: prepare dynamic resources: {error}"
            return self._outcome(name, "Pending", "FailedPrepareDynamicResources", text)
        return self._outcome(name, "Running")

    def _outcome(self, name: str, phase: str, reason: str = "", message: str = "") -> PodOutcome:
        return PodOutcome(
            name=name,
            phase=phase,
            reason=reason,
            message=message,
            claims=tuple(map(self._claim, self._known[name].claims)),
        )

    def _report(self, pod: Json, outcome: PodOutcome) -> None:
        before = self._outcomes.get(outcome.name)
        self._outcomes[outcome.name] = outcome
        body: dict[str, Any] = {**pod, "status": {"phase": outcome.phase}}
        self._api.replace_status("pods", body, namespace=NAMESPACE)
        if outcome.reason and (before is None or before.message != outcome.message):
            event = {
                "metadata": {"generateName": f"{outcome.name}."},
                "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": outcome.name},
                "type": "Warning",
                "reason": outcome.reason,
                "message": outcome.message,
            }
            self._api.create("events", event, namespace=NAMESPACE)

    def _forget(self, name: str) -> None:
        known = self._known[name]
        self._kubelet.unprepare(known.uid)
        mine = {each["metadata"]["name"] for each in self.claims() if _owner(each) == known.uid}
        for claim in sorted(mine):
            self._api.delete("resourceclaims", claim, namespace=NAMESPACE)
        self._known.pop(name)
        self._outcomes.pop(name, None)

    def _claim(self, name: str) -> Json:
        return self._api.get("resourceclaims", name, namespace=NAMESPACE)


def _pods_of(job: Json) -> tuple[Json, ...]:
    spec, name = job["spec"], job["metadata"]["name"]
    count = int(spec.get("completions") or spec.get("parallelism") or 1)
    return tuple(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number:02d}"},
            "spec": spec["template"]["spec"],
        }
        for number in range(1, count + 1)
    )


def _owner(claim: Json) -> str:
    owners = claim["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


def _ref(claim: Json) -> ClaimRef:
    metadata = claim["metadata"]
    return ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])


def _kubelet_claim(claim: Json) -> KubeletClaim:
    drivers = {result["driver"] for result in allocation_results(claim)}
    return KubeletClaim(ref=_ref(claim), drivers=tuple(sorted(drivers or {DRIVER})))
