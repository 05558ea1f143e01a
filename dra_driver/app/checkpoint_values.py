"""What a person asks of `gpuslice checkpoint`, and what they get."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver.app.checkpoint_target import FoundContainer


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWish:
    """What a person asks for.

    Attributes:
        namespace: empty: of the kubeconfig's context.
        container: empty: the pod's only one.
        output: where the archive goes on this machine; None: it stays on the node alone.
        driver_owned: the driver takes the processes off their GPUs, instead of CRIU's plugin.
        host_only: a checkpoint without what is on the GPUs is accepted.
        driver_namespace: where the plugins' pods are.
    """

    pod: str
    namespace: str = ""
    container: str = ""
    output: Path | None = None
    timeout_s: int = 60
    driver_owned: bool = False
    host_only: bool = False
    kubeconfig: Path | None = None
    context: str = ""
    driver_namespace: str = "gpuslice"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """A checkpoint that was taken.

    Attributes:
        archive: its file on the node.
        file: its copy on this machine, if one was asked for.
        operation: of the node's hook, in the JSON of its protocol; None: it is not known.
        failure: what is wrong with the container since; empty: nothing.
        notes: for people.
    """

    found: FoundContainer
    archive: str
    file: Path | None = None
    operation: dict[str, Any] | None = None
    failure: str = ""
    notes: tuple[str, ...] = ()

    @property
    def operation_id(self) -> str:
        return "" if self.operation is None else str(self.operation["operationId"])

    def to_json(self) -> dict[str, Any]:
        asked = self.found.asked
        return {
            "node": asked.node,
            "namespace": asked.namespace,
            "pod": asked.pod,
            "container": asked.container,
            "archive": self.archive,
            "file": None if self.file is None else str(self.file),
            "operation": self.operation,
            "failure": self.failure,
            "notes": list(self.notes),
        }
