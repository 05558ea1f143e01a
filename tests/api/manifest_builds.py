"""Manifests as `kubectl apply -k` sends them, and what a server makes of them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests import manifests
from tests.kube.client import Client, Json
from tests.manifests import FOLDER, Document


def build(kubectl: Path, folder: Path) -> tuple[Document, ...]:
    """Give what kustomize makes of a folder, by a binary that has kubectl in it."""
    done = subprocess.run(
        [kubectl, "kubectl", "kustomize", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return manifests.parse(done.stdout)


def overlay(folder: Path, *, resource: str = "base", manifests: Path = FOLDER, **more: Any) -> Path:
    """Write an overlay as users do; ``components`` are names of folders of the manifests."""
    folder.mkdir(parents=True, exist_ok=True)
    components = [f"components/{name}" for name in more.pop("components", ())]
    # Of folders, kustomize takes relative paths only.
    at = os.path.relpath(manifests, folder)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{at}/{resource}"],
        "components": [f"{at}/{name}" for name in components],
        **more,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return folder


def try_out(admin: Client, document: Document) -> list[str]:
    """Let a server check a document as strictly as it can, and tell what it would not keep.

    Raises:
        ApiError: it refuses the document, or does not know a field.
    """
    stored = admin.apply(document, dryRun="All", fieldValidation="Strict")
    return sorted(_missing(document, stored, ""))


def _missing(sent: Any, stored: Any, where: str) -> Iterator[str]:
    match sent:
        case dict() if isinstance(stored, dict):
            for key, value in sent.items():
                yield from _missing(value, stored.get(key), f"{where}.{key}")
        # The server may add to a list, such as the volume of a pod's token.
        case list() if isinstance(stored, list) and len(stored) >= len(sent):
            for value, kept in zip(sent, stored, strict=False):
                yield from _missing(value, kept, f"{where}[]")
        # A quantity may be written as a number; the server answers with text.
        case _ if sent != stored and str(sent) != stored:
            yield where


def ready_for_pods(admin: Client, namespace: Json) -> None:
    """Make a namespace with the account that its pods get, which no controller makes here."""
    admin.apply(namespace)
    account = {"name": "default", "namespace": namespace["metadata"]["name"]}
    admin.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
