"""The shipped manifests, read more strictly than by kubectl, which takes the last of equal keys."""

from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "manifests"
BASE = FOLDER / "base"
SIMULATED = FOLDER / "overlays" / "simulated"
SIMULATED_MPS = FOLDER / "overlays" / "simulated-mps"
EXAMPLES = tuple(sorted((FOLDER / "examples").glob("*.yaml")))

Document = dict[str, Any]


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.constructor.ConstructorError(
                None, None, f"a key stands twice among {keys}", node.start_mark
            )
        return super().construct_mapping(node, deep)


def read(path: Path) -> tuple[Document, ...]:
    """Give the documents of a file.

    Raises:
        YAMLError: it is no YAML, or a key stands twice.
    """
    return parse(path.read_text(encoding="utf-8"))


def parse(text: str) -> tuple[Document, ...]:
    """Give the documents of a text; raises as `read`."""
    return tuple(each for each in yaml.load_all(text, Loader=_Loader) if each)


def of_kind(kind: str, documents: tuple[Document, ...]) -> tuple[Document, ...]:
    return tuple(each for each in documents if each["kind"] == kind)


def base() -> tuple[Document, ...]:
    """Give what the kustomization of base lists, in its order, before it is built."""
    (kustomization,) = read(BASE / "kustomization.yaml")
    return tuple(each for name in kustomization["resources"] for each in read(BASE / name))


def daemon_set(component: str = "plugin") -> Document:
    return component_of(base(), component)


def component_of(documents: tuple[Document, ...], component: str) -> Document:
    """Give the DaemonSet of a component, such as "mpsd"."""
    name = f"gpuslice-{component}"
    (found,) = [
        each for each in of_kind("DaemonSet", documents) if each["metadata"]["name"] == name
    ]
    return found


def pod_spec(document: Document) -> Document:
    """Give the pod's spec of a pod, or of what makes pods."""
    spec: Document = document["spec"]
    return spec if document["kind"] == "Pod" else spec["template"]["spec"]


def claim_spec(document: Document) -> Document:
    """Give the devices part of a ResourceClaim or of a template for it."""
    spec: Document = document["spec"]
    return (spec if document["kind"] == "ResourceClaim" else spec["spec"])["devices"]  # type: ignore[no-any-return]


def choices(devices: Document) -> Iterator[Document]:
    """Give each way in which a request can be fulfilled: exact ones and alternatives."""
    for request in devices["requests"]:
        yield from [request["exactly"]] if "exactly" in request else request["firstAvailable"]
