"""The kubelet's cache of claims: who uses them, what is prepared, what a container gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from dra_driver.model.claim import ClaimRef
from dra_driver.model.record import PreparedDevice
from dra_driver.sim.kubelet_endpoint import Endpoint
from dra_driver.sim.kubelet_values import KubeletClaim, KubeletError, Manners

Select = Callable[[str], Endpoint]


class ClaimCache:
    """Survives a kubelet's restart, except for what is prepared.

    The lock is not held during calls, as in the real one: two pods of a claim may be prepared, and
    reach the driver, at the same time.

    Args:
        select: the endpoint that a driver's calls go to; raises KubeletError where there is none.
    """

    def __init__(self, select: Select, *, manners: Manners) -> None:
        self._select = select
        self._manners = manners
        self._lock = Lock()
        self._entries: dict[str, _Entry] = {}

    def prepare(self, pod_uid: str, claims: Iterable[KubeletClaim]) -> None:
        """Prepare a pod's claims: one call per driver with all that are not prepared yet.

        Raises:
            KubeletError: as the pod's Event would say it; what failed is cached all the same, so
                `unprepare` will send it.
        """
        entries = self._enlist(pod_uid, tuple(claims))
        missing = [entry for entry in entries if not entry.prepared]
        for driver in sorted({driver for entry in missing for driver in entry.drivers}):
            batch = tuple(entry for entry in missing if driver in entry.drivers)
            self._prepare_batch(driver, batch)
        with self._lock:
            for entry in missing:
                entry.prepared = True

    def unprepare(self, pod_uid: str) -> None:
        """Drop a pod; claims whose last pod it was are unprepared, whether or not prepared.

        Raises:
            KubeletError: a driver failed; the claims stay and the call can be repeated.
        """
        with self._lock:
            mine = [entry for entry in self._ordered() if pod_uid in entry.pods]
            last = [entry for entry in mine if entry.pods == {pod_uid}]
            for entry in mine:
                if entry not in last:
                    entry.pods.discard(pod_uid)
        for driver in sorted({driver for entry in last for driver in entry.drivers}):
            refs = tuple(entry.ref for entry in last if driver in entry.drivers)
            answers = self._select(driver).unprepare(refs)
            _check("NodeUnprepareResources", refs, answers)
        with self._lock:
            for entry in last:
                self._entries.pop(str(entry.ref), None)

    def devices(self, uid: str) -> tuple[PreparedDevice, ...]:
        """Prepared devices of a claim, by driver, in the order in which they were answered."""
        with self._lock:
            for entry in self._ordered():
                if entry.ref.uid == uid:
                    by_driver = sorted(entry.devices.items())
                    return tuple(device for _, devices in by_driver for device in devices)
        return ()

    def cdi_ids(self, uid: str, *, request: str = "") -> tuple[str, ...]:
        """CDI ids for a container that names `request` of the claim; empty names all of it."""
        return tuple(
            cdi_id
            for device in self.devices(uid)
            if not request or not device.requests or request in device.requests
            for cdi_id in device.cdi_ids
        )

    def forget_prepared(self) -> None:
        """Be a kubelet that was restarted: its cache is on disk, what is prepared is not."""
        with self._lock:
            for entry in self._entries.values():
                entry.prepared = False

    def _enlist(self, pod_uid: str, claims: tuple[KubeletClaim, ...]) -> list[_Entry]:
        for driver in sorted({driver for claim in claims for driver in claim.drivers}):
            self._select(driver)
        with self._lock:
            for claim in claims:
                known = self._entries.get(str(claim.ref))
                if known is not None and known.ref.uid != claim.ref.uid:
                    raise KubeletError(
                        f"old ResourceClaim with same name {claim.ref.name} and different UID"
                        f" {known.ref.uid} still exists (previous pod force-deleted?!)"
                    )
            entries = [
                self._entries.setdefault(str(claim.ref), _Entry(claim.ref, claim.drivers))
                for claim in claims
            ]
            for entry in entries:
                entry.pods.add(pod_uid)
            return entries

    def _prepare_batch(self, driver: str, batch: tuple[_Entry, ...]) -> None:
        refs = tuple(entry.ref for entry in batch)
        answers = self._select(driver).prepare(refs)
        by_uid = {entry.ref.uid: entry for entry in batch}
        with self._lock:
            for uid, answer in answers.items():
                if uid in by_uid and not isinstance(answer, str):
                    had = by_uid[uid].devices.get(driver, ())
                    by_uid[uid].devices[driver] = (
                        had + answer if self._manners.append_devices else answer
                    )
        _check(
            "NodePrepareResources",
            refs,
            {uid: answer if isinstance(answer, str) else "" for uid, answer in answers.items()},
        )

    def _ordered(self) -> list[_Entry]:
        return [self._entries[key] for key in sorted(self._entries)]


@dataclass(slots=True, eq=False)
class _Entry:
    ref: ClaimRef
    drivers: tuple[str, ...]
    pods: set[str] = field(default_factory=set)
    devices: dict[str, tuple[PreparedDevice, ...]] = field(default_factory=dict)
    prepared: bool = False


def _check(method: str, refs: tuple[ClaimRef, ...], errors: Mapping[str, str]) -> None:
    """The kubelet's checks of an answer: every UID, no other, no error."""
    names = {ref.uid: ref.name for ref in refs}
    for uid, error in errors.items():
        if uid not in names:
            raise KubeletError(f"{method} returned result for unknown claim UID {uid}")
        if error:
            raise KubeletError(f"{method} failed for ResourceClaim {names[uid]}: {error}")
    skipped = len(names) - len(errors)
    if skipped:
        raise KubeletError(f"{method} skipped {skipped} ResourceClaims")
