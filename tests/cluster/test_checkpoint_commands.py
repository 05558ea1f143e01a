"""Commands about checkpoints, as people run them against a node with the driver's hook."""

import stat
from pathlib import Path

from tests.cluster import deployed
from tests.cluster.checkpoint_fixtures import deploy_hook
from tests.cluster.checkpoint_hook import API_VERSION, RESTORE, Hook, gpu_of, state_of, with_config
from tests.cluster.checkpoint_people import Ended, Person, without_checkpoint_right
from tests.cluster.checkpoint_runtime import wait_at_work
from tests.cluster.checkpoint_site import Checkpoints, Count, counting
from tests.cluster.life_site import WHOLE, Tenant, part
from tests.kube.client import Json

POSSIBLE = with_config(WHOLE, checkpoint="Required")
_FOLDER = "/var/lib/kubelet/checkpoints"
_OTHER_BOARD = {"uuid": "auto", "profile": "a100-80gb-sxm", "pciBusId": "0000:fb:00.0"}


def test_checkpoint_tells_its_archive_and_operation_when_a_copy_is_fetched(
    checkpoints: Checkpoints, hook: Hook, tmp_path: Path
) -> None:
    site, copy = checkpoints.site, tmp_path / "copy.tar"
    admin = Person.admin(site)
    source = checkpoints.start_counting("fetched", POSSIBLE)
    taken = admin.checkpoint("fetched", "-c", "main", "-o", str(copy))
    assert taken.status == 0, taken.err
    wait_at_work(site.cluster, source)
    site.unchanged(source)
    (archive,) = checkpoints.archives()
    node = site.cluster.node_name
    assert taken.value("archive") == f"{_FOLDER}/{archive.name} on node {node}"
    assert taken.value("copy") == str(copy)
    assert copy.read_bytes() == archive.read_bytes()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    operation = hook.ended(source)
    assert state_of(operation) == "DONE"
    assert taken.value("operation") == f"{operation['operationId']}, done"
    assert f"--operation {operation['operationId']}" in taken.value("restore")

    listed = admin.run("operations", "--all", "--namespace", site.namespace)
    assert listed.status == 0, listed.err
    (row,) = listed.out.splitlines()[1:]
    assert row.split()[:5] == [
        *(node, operation["operationId"], "checkpoint", "done"),
        f"{site.namespace}/fetched",
    ]
    assert admin.run("operations", "--namespace", site.namespace).out == "No operation.\n"


def test_restore_prints_what_goes_on_counting_when_the_source_is_gone(
    checkpoints: Checkpoints, hook: Hook
) -> None:
    site, admin = checkpoints.site, Person.admin(checkpoints.site)
    source = _start_without_volumes(checkpoints, "moved")
    counted = Count.of(source)
    taken = admin.checkpoint("moved")
    assert taken.status == 0, taken.err
    site.delete("moved")
    site.wait_gone("moved")
    made = admin.restore(taken)
    assert made.status == 0, made.err
    site.cluster.kubectl("apply", "-f", "-", stdin=made.out)
    restored = checkpoints.counting("moved-restored")
    goes_on = Count.of(restored)
    assert goes_on.process == counted.process
    assert goes_on.number >= counted.number
    assert site.claim("moved-restored")["status"]["reservedFor"][0]["uid"] == restored.uid
    wait_at_work(site.cluster, restored)
    assert state_of(hook.ended(restored, RESTORE)) == "DONE"


def test_claim_of_another_model_is_refused_when_it_is_to_restore_a_checkpoint(
    checkpoints: Checkpoints, hook: Hook
) -> None:
    site, admin = checkpoints.site, Person.admin(checkpoints.site)
    cluster = site.cluster
    source = _start_without_volumes(checkpoints, "other-model")
    taken = admin.checkpoint("other-model")
    made = admin.restore(taken)
    assert made.status == 0, made.err
    document = deployed.simulated_document(cluster)
    more = {**document, "gpus": [*document["gpus"], _OTHER_BOARD]}
    with deployed.simulated(cluster, more) as devices:
        (other,) = (each for each in devices if _is_whole(each) and "A100" in _model(each))
        changed = made.out.replace(gpu_of(source), str(deployed.attribute(other, "uuid")))
        assert changed != made.out
        cluster.kubectl("apply", "-f", "-", stdin=changed)
        site.wait_event(
            "other-model-restored", "FailedPrepareDynamicResources", "gpuModel", "H100", "A100"
        )
        assert site.phase("other-model-restored") == "Pending"
        site.delete("other-model-restored")
        site.wait_gone("other-model-restored")
    wait_at_work(cluster, source)


def test_checkpoint_says_why_it_was_refused_when_a_share_is_under_mps(
    checkpoints: Checkpoints, hook: Hook
) -> None:
    config = {"apiVersion": API_VERSION, "kind": "SliceConfig", "checkpoint": "BestEffort"}
    share = checkpoints.start_counting("under-mps", {**part(25, "6Gi"), "config": config})
    refused = Person.admin(checkpoints.site).checkpoint("under-mps")
    assert refused.status == 1
    assert "the driver says: " in refused.err
    assert "MPS" in refused.err.partition("the driver says: ")[2]
    assert refused.out == ""
    assert checkpoints.archives() == frozenset()
    wait_at_work(checkpoints.site.cluster, share)
    checkpoints.site.unchanged(share)


def test_each_right_is_named_by_its_role_when_it_is_missing(
    checkpoints: Checkpoints, hook: Hook, tmp_path: Path
) -> None:
    site, copy = checkpoints.site, tmp_path / "copy.tar"
    cluster = site.cluster
    source = checkpoints.start_counting("guarded", POSSIBLE)
    with without_checkpoint_right(cluster):
        refused = Person.admin(site).checkpoint("guarded")
        _assert_refused(refused, "ClusterRole gpuslice-checkpoint ", "nodes/checkpoint")
        assert hook.operations(source) == []
        deploy_hook(cluster, "checkpoint-rights")
        cluster.restart_kubelet()

        person = Person.without_rights(site)
        _assert_refused(person.checkpoint("guarded"), "ClusterRole gpuslice-checkpointer ")
        person.grant("clusterrole", "gpuslice-checkpointer", allows="nodes/proxy")
        refused = person.checkpoint("guarded", "-o", str(copy))
        _assert_refused(refused, "Role gpuslice-plugin-exec ")
        person.grant(
            *("role", "gpuslice-plugin-exec"), allows="pods/exec", namespace=deployed.NAMESPACE
        )
        taken = person.checkpoint("guarded", "-o", str(copy))
        assert taken.status == 0, taken.err
        (archive,) = checkpoints.archives()
        assert copy.read_bytes() == archive.read_bytes()
    wait_at_work(cluster, source)


def _start_without_volumes(checkpoints: Checkpoints, name: str) -> Tenant:
    """What is printed to restore a pod has no volumes: to be applied as it is, its source has none."""

    def change(pod: Json) -> None:
        del pod["spec"]["volumes"]
        del pod["spec"]["containers"][0]["volumeMounts"]

    checkpoints.site.create(name, POSSIBLE, change=change, **counting())
    return checkpoints.counting(name)


def _assert_refused(ended: Ended, *texts: str) -> None:
    assert (ended.status, ended.out) == (1, "")
    assert all(text in ended.err for text in texts), ended.err


def _is_whole(device: Json) -> bool:
    return str(deployed.attribute(device, "type")) == "gpu"


def _model(device: Json) -> str:
    return str(deployed.attribute(device, "productName"))
