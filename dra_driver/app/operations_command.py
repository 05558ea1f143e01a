"""The command `gpuslice operations`: what the hooks of nodes are at, and what failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver.adapters.kube_caller import connect_caller
from dra_driver.app.node_plugins import NodePlugin, NodePlugins
from dra_driver.app.node_side import hook_socket
from dra_driver.errors import AdapterError, FatalError
from dra_driver.settings import Settings

_AT_ONCE = 16
_CALL_S = 10.0
_LIST = "ListOperations"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsWish:
    """What a person asks for.

    Attributes:
        namespace: of pods; empty: all.
        node: empty: all.
        ended_well: those that ended well, too.
    """

    namespace: str = ""
    node: str = ""
    ended_well: bool = False
    kubeconfig: Path | None = None
    context: str = ""
    driver_namespace: str = "gpuslice"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRow:
    """An operation, in the JSON of the checkpoint service's protocol, and its node."""

    node: str
    operation: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsReport:
    """Attributes: rows by node, then start; nodes that could not be asked, with the reason."""

    rows: tuple[OperationRow, ...]
    unknown: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "operations": [{"node": row.node, **row.operation} for row in self.rows],
            "unknown": [{"node": node, "reason": reason} for node, reason in self.unknown],
        }


def local_operations(settings: Settings, wish: OperationsWish) -> OperationsReport:
    """Ask the checkpoint service of this node; raises AdapterError."""
    from dra_driver.adapters.checkpoint_client import call_hook  # noqa: PLC0415 - imports gRPC

    answer = call_hook(hook_socket(settings), _LIST, _request(wish), timeout_s=_CALL_S)
    return OperationsReport(rows=_rows(settings.node_name or "this node", answer, wish))


def operations(wish: OperationsWish) -> OperationsReport:
    """Ask the nodes of a cluster, by commands in their plugins' pods.

    Raises:
        SettingsError: the kubeconfig cannot be used.
        FatalError: no node could be asked.
    """
    api = connect_caller(kubeconfig=wish.kubeconfig, context=wish.context)
    with closing(api), ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="operations") as pool:
        plugins = NodePlugins(api, namespace=wish.driver_namespace)
        asked = (plugins.on(wish.node),) if wish.node else plugins.all()
        answers = list(pool.map(lambda plugin: _ask(plugins, plugin, wish), asked))
    unknown = tuple(each for each in answers if isinstance(each, tuple))
    found = [each for each in answers if isinstance(each, OperationsReport)]
    if not found:
        raise FatalError("; ".join(reason for _, reason in unknown))
    return OperationsReport(rows=tuple(row for each in found for row in each.rows), unknown=unknown)


def find_operation(plugins: NodePlugins, operation_id: str, *, node: str) -> OperationRow:
    """Find an operation, on a node or on any.

    Raises:
        FatalError: nobody knows it.
    """
    reasons = []
    for plugin in (plugins.on(node),) if node else plugins.all():
        try:
            found = plugins.hook(plugin, "GetOperation", {"operationId": operation_id})
        except FatalError as error:
            reasons.append(str(error))
        else:
            return OperationRow(node=plugin.node, operation=found)
    raise FatalError(f"operation {operation_id} was not found: {'; '.join(reasons)}")


def _ask(
    plugins: NodePlugins, plugin: NodePlugin, wish: OperationsWish
) -> OperationsReport | tuple[str, str]:
    try:
        answer = plugins.hook(plugin, _LIST, _request(wish))
        return OperationsReport(rows=_rows(plugin.node, answer, wish))
    except (FatalError, AdapterError) as error:
        return plugin.node, str(error)


def _request(wish: OperationsWish) -> dict[str, Any]:
    return {"unfinishedOrFailed": not wish.ended_well}


def _rows(node: str, answer: Mapping[str, Any], wish: OperationsWish) -> tuple[OperationRow, ...]:
    listed: Iterable[Mapping[str, Any]] = answer.get("operations") or ()
    return tuple(
        OperationRow(node=node, operation=each)
        for each in listed
        if wish.namespace in {"", (each.get("target") or {}).get("podNamespace")}
    )
