"""What a kubelet's answer to a checkpoint means, and what to do about it.

Sources: pkg/kubelet/server of Kubernetes 1.34: the kubelet answers in plain text, where the API
server in front of it answers with a Status; containerd's errors as seen.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

RIGHTS = "manifests/components/checkpoint-rights"
"""What grants the rights that are named here."""

_OK = 200
_TEXT_MAX = 600
_USER = re.compile(r"user=([^,)]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which container of which node was to be checkpointed, and for how long it was waited."""

    node: str
    namespace: str
    pod: str
    container: str
    timeout_s: int

    def __str__(self) -> str:
        return f"container {self.container} of pod {self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """There is a checkpoint; `archive` is its file on the node."""

    archive: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTaken:
    """There is none.

    Attributes:
        text: why, and what to do.
        tried: the runtime began with it, so the container and its GPU may tell more.
    """

    text: str
    tried: bool = False


def judge_answer(asked: Asked, status: int, content: bytes) -> Taken | NotTaken:
    """Read an answer.

    Args:
        asked: what for.
        status: of HTTP.
        content: as it came.
    """
    if status == _OK:
        return _taken(asked, content)
    of_api_server, text = _said(content)
    match status:
        case 401:
            return NotTaken(text=_unauthorized(asked, of_api_server=of_api_server))
        case 403:
            return NotTaken(text=_forbidden(asked, text, of_api_server=of_api_server))
        case 404:
            return NotTaken(text=_not_found(asked, text, of_api_server=of_api_server))
        case 500 if not of_api_server:
            return NotTaken(text=_failed(asked, text), tried=True)
        case _:
            return NotTaken(
                text=f"no checkpoint of {asked}: {status} {text}; check that the API server reaches"
                f" the kubelet of node {asked.node}",
                # What an impatient proxy gave up, the kubelet may still be at.
                tried=True,
            )


def _taken(asked: Asked, content: bytes) -> Taken | NotTaken:
    try:
        (archive,) = json.loads(content)["items"]
    except (ValueError, KeyError, TypeError):
        return NotTaken(
            text=f"the kubelet of node {asked.node} says that {asked} was checkpointed, and not"
            f" where to: {content[:200].decode(errors='replace')!r}; look into its folder of"
            " checkpoints",
            tried=True,
        )
    return Taken(archive=str(archive))


def _said(content: bytes) -> tuple[bool, str]:
    """Whether the API server itself answered, and what was said."""
    plain = " ".join(content.decode(errors="replace").split())[:_TEXT_MAX]
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return False, plain
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return False, plain
    return True, str(body.get("message", ""))[:_TEXT_MAX]


def _unauthorized(asked: Asked, *, of_api_server: bool) -> str:
    if of_api_server:
        return "the API server does not know you: log in again, or give another --kubeconfig"
    return (
        f"the kubelet of node {asked.node} does not know the API server: give kube-apiserver"
        " --kubelet-client-certificate of the authority that the kubelet trusts"
    )


def _forbidden(asked: Asked, text: str, *, of_api_server: bool) -> str:
    if of_api_server:
        return (
            f"you may not ask the kubelet of node {asked.node} for a checkpoint: {text}; an"
            " administrator grants 'create nodes/proxy' by the ClusterRole gpuslice-checkpointer"
            f" ({RIGHTS}), which is as good as root on the nodes"
        )
    found = _USER.search(text)
    user = found[1] if found is not None else "kube-apiserver-kubelet-client"
    return (
        f"the kubelet of node {asked.node} lets the API server, whose user is {user!r} there, take"
        f" no checkpoints: {text}; an administrator grants 'create nodes/checkpoint' by the"
        f" ClusterRole gpuslice-checkpoint ({RIGHTS}), bound to that user"
    )


def _not_found(asked: Asked, text: str, *, of_api_server: bool) -> str:
    if of_api_server:
        return f"no checkpoint of {asked}: {text}"
    if "page not found" in text:
        return (
            f"the kubelet of node {asked.node} takes no checkpoints: switch its feature gate"
            " ContainerCheckpoint on"
        )
    return f"the kubelet of node {asked.node} does not have {asked} (any more): {text}"


def _failed(asked: Asked, text: str) -> str:
    lower = text.lower()
    if "deadlineexceeded" in lower or "deadline exceeded" in lower:
        return (
            f"the checkpoint of {asked} took longer than {asked.timeout_s} s; the runtime may have"
            f" left the container paused: on node {asked.node}, 'ctr -n k8s.io tasks ls' shows it"
            " and 'ctr -n k8s.io tasks resume ID' lets it go on; then give a longer --timeout"
        )
    if "unimplemented" in lower or "unknown method" in lower:
        return (
            f"the container runtime of node {asked.node} takes no checkpoints: use containerd 2.1"
            f" or later ({text})"
        )
    if "criu" in lower and ("not found" in lower or "no such file" in lower):
        return f"node {asked.node} has no CRIU 4.1 or later that the runtime finds: {text}"
    return f"the checkpoint of {asked} failed on node {asked.node}: {text}"
