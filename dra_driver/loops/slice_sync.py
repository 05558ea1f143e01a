"""One pass of publishing: from what should be there to what is there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Protocol, assert_never

from dra_driver import log
from dra_driver.errors import AdapterError, NotFound
from dra_driver.loops.capabilities import Capabilities
from dra_driver.model.capability import ApiCapability
from dra_driver.model.device import Inventory
from dra_driver.model.pool import Pool
from dra_driver.plan.reconcile import (
    CreateSlice,
    DeleteSlice,
    ReplaceSlice,
    SliceOp,
    dropped_fields,
    reconcile,
)
from dra_driver.plan.slice_json import slice_specs
from dra_driver.ports import ApiProbe, Json, Recorder, SliceApi

_LOG = log.get(__name__)

BuildPool = Callable[[Inventory, ApiCapability], Pool]


class FieldsDropped(AdapterError):  # noqa: N818 - names what happened
    """The server stored a slice without fields that it had kept in a dry run."""


class Stopped(AdapterError):  # noqa: N818
    """The process is ending; what was not written stays as it is."""


class Observer(Protocol):
    """Who must not take this pass's writes for another's."""

    def writing(self) -> AbstractContextManager[object]: ...

    def knows(self, versions: dict[str, str]) -> None: ...

    def listed(self, resource_version: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What the server has.

    Attributes:
        owner_uid: of the Node that the slices name.
        writes: how many it took to get there.
    """

    pool: Pool
    capability: ApiCapability
    owner_uid: str
    writes: int = 0


class SliceSync:
    """Makes the server's slices say what the inventory says.

    Args:
        slices: to read and write.
        probe: for the Node's UID.
        capabilities: what the server keeps.
        build: turns an inventory into the pool.
        observer: told of lists and writes.
        recorder: counts writes as `slice_writes_total`.
        node: name of the node.
    """

    def __init__(
        self,
        *,
        slices: SliceApi,
        probe: ApiProbe,
        capabilities: Capabilities,
        build: BuildPool,
        observer: Observer,
        recorder: Recorder,
        node: str,
    ) -> None:
        self._slices = slices
        self._probe = probe
        self._capabilities = capabilities
        self._build = build
        self._observer = observer
        self._recorder = recorder
        self._node = node

    def run(self, inventory: Inventory, *, believed: Published | None, stop: Event) -> Published:
        """Publish; writes nothing where nothing has to change.

        Args:
            inventory: what there is.
            believed: what the server is believed to have; without it the slices are listed even
                where nothing else changed.
            stop: nothing is written once it is set.

        Raises:
            Stopped: `stop` was set before all was written.
            FieldsDropped: the next pass does without those fields.
            AdapterError: not done; a pass can be repeated at any time.
        """
        capability = self._capabilities.current()
        wanted = Published(
            pool=self._build(inventory, capability),
            capability=capability,
            owner_uid=self._node_uid(),
        )
        if believed is not None and wanted == believed:
            return believed
        with self._observer.writing():
            actual, version = self._slices.list_slices()
            versions = {_name(each): _version(each) for each in actual}
            self._observer.knows(versions)
            ops = reconcile(slice_specs(wanted.pool), actual, wanted.owner_uid)
            try:
                for op in ops:
                    if stop.is_set():
                        raise Stopped("the process is ending: its next start publishes the rest")
                    self._write(op, versions)
            finally:
                self._observer.knows(versions)
        self._observer.listed(version)
        return replace(wanted, writes=len(ops))

    def _write(self, op: SliceOp, versions: dict[str, str]) -> None:
        match op:
            case CreateSlice(body=body):
                self._stored(body, self._slices.create_slice(body), versions, verb="create")
            case ReplaceSlice(name=name, body=body):
                stored = self._slices.replace_slice(name, body)
                self._stored(body, stored, versions, verb="replace")
            case DeleteSlice(name=name, uid=uid, resource_version=version):
                self._slices.delete_slice(name, uid=uid, resource_version=version)
                versions.pop(name, None)
                self._recorder.count("slice_writes_total", verb="delete")
                _LOG.info("Deleted a ResourceSlice", name=name)
            case _ as never:
                assert_never(never)

    def _stored(self, sent: Json, stored: Json, versions: dict[str, str], *, verb: str) -> None:
        versions[_name(stored)] = _version(stored)
        self._recorder.count("slice_writes_total", verb=verb)
        spec: dict[str, Any] = stored["spec"]
        generation = spec["pool"]["generation"]
        _LOG.info("Wrote a ResourceSlice", verb=verb, name=_name(stored), generation=generation)
        if dropped := dropped_fields(sent["spec"], spec):
            self._capabilities.distrust(dropped)
            raise FieldsDropped(
                f"the API server dropped {', '.join(dropped)} of ResourceSlice {_name(stored)}: "
                "publishing without them; are all API servers of one version and feature gates?"
            )

    def _node_uid(self) -> str:
        try:
            return self._probe.node_uid()
        except NotFound as error:
            raise AdapterError(
                f"there is no Node {self._node} yet, so nothing can be published for it: check "
                "--node-name, or wait until the kubelet has registered the node"
            ) from error


def _name(stored: Json) -> str:
    return str(stored["metadata"]["name"])


def _version(stored: Json) -> str:
    return str(stored["metadata"]["resourceVersion"])
