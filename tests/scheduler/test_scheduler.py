"""The embedded scheduler against kube-scheduler; hack/fuzz does the same with more and new cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kube.process import wait_until
from tests.scheduler.cases import random_case
from tests.scheduler.compare import PANIC, StandIn
from tests.scheduler.control_plane import PODS, ControlPlane
from tests.scheduler.runner import Runner
from tests.scheduler.values import DRIVER, TARGETS, Json, Target

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(180, func_only=True),
    pytest.mark.usefixtures("schedulers_built"),
]

CASES = 60
SEED = 1
NODE = "node-a"
GATES_34 = TARGETS[1]


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_embedded_scheduler_answers_as_kube_scheduler(target: Target, tmp_path: Path) -> None:
    cases = tuple(random_case(SEED, number, target) for number in range(CASES))
    with ControlPlane(tmp_path, target) as plane:
        report = Runner(plane, cases, say=print).run()
    assert report.differences == [], json.dumps(report.differences[0], indent=2)
    assert min(report.kinds[each] for each in ("allocated", "refused", "failed")) > 0


def test_kube_scheduler_dies_where_the_embedded_one_says_so(tmp_path: Path) -> None:
    slices = tuple(_slice(number) for number in range(2))
    wishes: tuple[Json, ...] = ({"count": 2}, {"allocationMode": "All"})
    with ControlPlane(tmp_path, GATES_34) as plane:
        stored = plane.add_node(NODE, slices)
        for number, wish in enumerate(wishes):
            exactly = {"deviceClassName": f"slice.{DRIVER}", **wish}
            claim = plane.add_claim(f"claim-{number}", _devices(exactly))
            document = {"node": NODE, "slices": stored, "classes": plane.classes()}
            answers = StandIn(GATES_34).answers({**document, "claims": [claim], "others": []})
            assert [each.kind for each in answers] == [PANIC]
            plane.start_scheduler()
            plane.add_pod(f"pod-{number}", node=NODE, claims=(f"claim-{number}",))
            wait_until(
                lambda: "it runs" if plane.scheduler.running else "",
                waiting_for="the end of kube-scheduler",
                timeout_s=60.0,
            )
            assert "index out of range [1] with length 1" in plane.scheduler.log.read_text()
            plane.admin.delete(f"{PODS}/pod-{number}", gracePeriodSeconds="0")


def _slice(number: int) -> Json:
    device = {
        "name": f"gpu-{number}",
        "attributes": {"type": {"string": "gpu"}, "sharing": {"string": "Shared"}},
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "80Gi"}},
    }
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 2}
    return {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": [device]}


def _devices(exactly: Json) -> Json:
    return {"requests": [{"name": "gpu", "exactly": exactly}]}
