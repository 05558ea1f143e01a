"""The driver in a cluster as people install it: its image, run by the shipped manifests.

Only what a test has to decide differs from the shipped overlay: settings, the simulated GPUs, and
the node, as further nodes of a cluster have no kubelet.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from dra_driver.adapters.profiles import resolve_simulate
from tests.cluster.life_processes import processes
from tests.kube.client import Json
from tests.kube.cluster import Cluster
from tests.kube.process import NotReadyError, wait_until

DRIVER = "gpuslice.io"
NAMESPACE = "gpuslice"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
MANIFESTS = Path(__file__).parents[2] / "manifests"

_IMAGE = "gpuslice:dev"
_SIMULATED = "/run/gpuslice-simulated"
_SIMULATED_FILE = f"{_SIMULATED}/node.yaml"
_DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"

Devices = tuple[Json, ...]


def deploy(
    cluster: Cluster,
    *,
    image: Path | None = None,
    simulate: str | Json | None = None,
    publish_mode: str | None = None,
    static_layout: str | None = None,
    overlay: str = "simulated",
    components: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    mpsd_settings: Mapping[str, str] | None = None,
) -> None:
    """Install the driver, or change how it is installed; returns once its Pod serves the node.

    `image` is an archive to load first, None where the node has the image already. `simulate` is
    what `set_simulated` takes. `publish_mode`, `static_layout` and `settings` (by name) are flags
    of the plugin, `mpsd_settings` those of mpsd. What is not given is as shipped. `overlay` and `components` are folders of
    manifests/overlays and manifests/components.

    Raises:
        NotReadyError: the Pod does not become ready, or publishes nothing; with its log.
    """
    if image is not None:
        cluster.load_image(image)
    flags = {"publish-mode": publish_mode, "static-layout": static_layout, **(settings or {})}
    source: dict[str, str] = {}
    if simulate is not None:
        set_simulated(cluster, simulate)
        source = {"simulate": _SIMULATED_FILE}
    chosen = {
        "plugin": {name: value for name, value in flags.items() if value is not None} | source,
        "mpsd": {**(mpsd_settings or {}), **source},
    }
    objects = _rendered(cluster, overlay, components)
    for each in objects:
        if each["kind"] == "DaemonSet":
            component = each["metadata"]["name"].removeprefix("gpuslice-")
            _adapt(each, flags=chosen[component], node=cluster.node_name)
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
    wait_deployed(cluster)


def set_simulated(cluster: Cluster, simulate: str | Json) -> None:
    """Change the real node's simulated GPUs, as a running plugin sees them at once.

    `simulate` is the name of a ready node, or a document as the plugin's `--simulate` takes it.
    """
    file = cluster.node_path(_SIMULATED_FILE)
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    if isinstance(simulate, str):
        shutil.copy(resolve_simulate(simulate), new)
    else:
        new.write_text(yaml.safe_dump(simulate))
    new.rename(file)


def simulated_document(cluster: Cluster) -> Json:
    """Give the document of the real node's simulated GPUs, as it is now."""
    document: Json = yaml.safe_load(cluster.node_path(_SIMULATED_FILE).read_text())
    return document


@contextmanager
def simulated(cluster: Cluster, document: Json) -> Iterator[Devices]:
    """Have other GPUs on the real node; gives the devices, once they are published.

    The driver has to be deployed with simulated GPUs; afterwards these are there again.
    """
    before = simulated_document(cluster)
    set_simulated(cluster, document)
    try:
        yield wait_published(cluster, gpus=len(document["gpus"]))
    finally:
        set_simulated(cluster, before)
        wait_published(cluster, gpus=len(before["gpus"]))


def gpus(*domains: int) -> Json:
    """Describe a node of H100: how many GPUs each of its NVLink domains has."""
    names = [f"n{number}" for number, count in enumerate(domains) for _ in range(count)]
    return {"gpus": [{"uuid": "auto", "nvlinkDomain": name} for name in names]}


def wait_deployed(cluster: Cluster, *, timeout_s: float = 90.0) -> None:
    """Wait until one up-to-date Pod is ready and the node's devices are published.

    Raises:
        NotReadyError: the time was up; with the Pod's log.
    """
    try:
        wait_until(
            lambda: _rollout_problem(cluster), waiting_for="the DaemonSet", timeout_s=timeout_s
        )
        wait_published(cluster)
    except NotReadyError as error:
        raise NotReadyError(f"{error}\n{plugin_log(cluster)}") from None


def wait_published(
    cluster: Cluster,
    *,
    node: str | None = None,
    gpus: int | None = None,
    until: Callable[[Devices], bool] = lambda _: True,
    timeout_s: float = 60.0,
) -> Devices:
    """Give the devices of a node's pool once it is complete, in the order of publishing.

    `node` is the real one by default. There have to be `gpus` GPUs, by default any number but
    none, and the devices have to fulfil `until`.

    Raises:
        NotReadyError: the time was up; with what is published.
    """
    pool = node or cluster.node_name

    def problem() -> str:
        devices = published(cluster, node=pool)
        found = len({_uuid(each) for each in devices if _type(each) != "pad"})
        wanted = found > 0 if gpus is None else found == gpus
        names = ", ".join(each["name"] for each in devices)
        return "" if wanted and until(devices) else f"{found} GPUs by the devices [{names}]"

    wait_until(problem, waiting_for=f"the devices of node {pool}", timeout_s=timeout_s)
    return published(cluster, node=pool)


def published(cluster: Cluster, *, node: str | None = None) -> Devices:
    """Give the devices of a node's pool, in the order of publishing; none while it is incomplete."""
    pool = node or cluster.node_name
    slices = [
        each["spec"]
        for each in cluster.admin.list(SLICES, fieldSelector=f"spec.nodeName={pool}")
        if each["spec"]["driver"] == DRIVER
    ]
    newest = max((each["pool"]["generation"] for each in slices), default=0)
    current = [each for each in slices if each["pool"]["generation"] == newest]
    if any(each["pool"]["resourceSliceCount"] != len(current) for each in current):
        return ()
    return tuple(device for each in current for device in each.get("devices", ()))


def plugin_pod(cluster: Cluster) -> Json:
    """Give the driver's Pod on the real node; there has to be one alone that is not ending."""
    (found,) = (pod for pod in pods_of(cluster) if "deletionTimestamp" not in pod["metadata"])
    return found


def plugin_log(cluster: Cluster, *, lines: int = 30) -> str:
    """Give the end of the logs of the driver's Pods, of those that ended before, too."""
    texts = []
    for pod in pods_of(cluster):
        name = pod["metadata"]["name"]
        for previous in ("true", "false"):
            arguments = ("-n", NAMESPACE, name, f"--tail={lines}", f"--previous={previous}")
            try:
                texts.append(f"{name}:\n{cluster.kubectl('logs', *arguments)}")
            except NotReadyError as error:
                texts.append(f"{name}, previous={previous}: {error}")
    return "\n".join(texts)


def daemon_set(cluster: Cluster, component: str = "plugin") -> Json:
    return cluster.admin.get(f"{_DAEMON_SETS}/gpuslice-{component}")


def _rendered(cluster: Cluster, overlay: str, components: Sequence[str]) -> list[Json]:
    """Give the manifests by an overlay of the cluster's own, as a user has one."""
    folder = cluster.folder / "overlay"
    folder.mkdir(exist_ok=True)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        # Of bases, kustomize takes relative paths only.
        "resources": [os.path.relpath(MANIFESTS / "overlays" / overlay, folder)],
        "components": [
            os.path.relpath(MANIFESTS / "components" / each, folder) for each in components
        ],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return [each for each in yaml.safe_load_all(cluster.kubectl("kustomize", str(folder))) if each]


def pods_of(cluster: Cluster, component: str = "plugin") -> tuple[Json, ...]:
    """Give the Pods of one of the driver's DaemonSets, those that are ending among them."""
    labels = daemon_set(cluster, component)["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    return cluster.admin.list(_PODS, labelSelector=selector)


def _rollout_problem(cluster: Cluster) -> str:
    found = daemon_set(cluster)
    status = found["status"]
    seen = status.get("observedGeneration") == found["metadata"]["generation"]
    counts = {
        name: status.get(name, 0)
        for name in ("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable")
    }
    # What has been killed just now counts as available a while longer.
    pods = [(pod["metadata"]["name"], _runs(cluster, pod)) for pod in pods_of(cluster)]
    done = seen and [runs for _, runs in pods] == [True] and set(counts.values()) == {1}
    return "" if done else f"{counts}, Pods and whether they run: {pods}"


def _runs(cluster: Cluster, pod: Json) -> bool:
    containers = [each.get("containerID") for each in pod["status"].get("containerStatuses", ())]
    return bool(containers) and all(each and processes(cluster, each) for each in containers)


def _adapt(daemon_set: Json, *, flags: Mapping[str, str], node: str) -> None:
    spec: Json = daemon_set["spec"]["template"]["spec"]
    # The other nodes are processes beside this one: no kubelet would ever start their Pods.
    spec["nodeSelector"] = {**spec.get("nodeSelector", {}), "kubernetes.io/hostname": node}
    (container,) = spec["containers"]
    container["image"] = _IMAGE
    container["imagePullPolicy"] = "Never"
    # It is asked for again and again: each time this is what the test waits for.
    container["readinessProbe"]["periodSeconds"] = 1
    set_flags(container, flags)
    if flags.get("simulate") == _SIMULATED_FILE:
        path = {"path": _SIMULATED, "type": "DirectoryOrCreate"}
        spec.setdefault("volumes", []).append({"name": "simulated-test", "hostPath": path})
        mount = {"name": "simulated-test", "mountPath": _SIMULATED, "readOnly": True}
        container.setdefault("volumeMounts", []).append(mount)


def set_flags(container: Json, flags: Mapping[str, str]) -> None:
    """Set flags of the plugin's command line; they replace its arguments and variables."""
    variables = {f"GPUSLICE_{name.replace('-', '_').upper()}" for name in flags}
    kept = [
        each
        for each in container.get("args", ())
        if each.partition("=")[0].removeprefix("--") not in flags
    ]
    container["args"] = [*kept, *(f"--{name}={value}" for name, value in flags.items())]
    env = [each for each in container.get("env", ()) if each["name"] not in variables]
    container["env"] = env


def attribute(device: Json, name: str) -> Any:
    """Give the value of a device's attribute."""
    (value,) = device["attributes"][name].values()
    return value


def _uuid(device: Json) -> str:
    return str(attribute(device, "uuid"))


def _type(device: Json) -> str:
    return str(attribute(device, "type"))
