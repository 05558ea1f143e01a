"""Reconciling slices, on a server that stores them as a real one does."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.plan.reconcile import (
    CreateSlice,
    DeleteSlice,
    ReplaceSlice,
    SliceOp,
    dropped_fields,
    reconcile,
)
from dra_driver.plan.slice_json import same_spec, slice_specs
from dra_driver.sim.api_profiles import V1_37
from dra_driver.sim.api_server import SimApiServer
from tests import builders
from tests.unit.publishing import pool_of, sick

OWNER = "node-uid"
SLICES = "resourceslices"
Specs = tuple[dict[str, Any], ...]


def specs(gpu_count: int, *, unhealthy: int | None = None) -> Specs:
    inventory = builders.inventory(*(builders.gpu(number) for number in range(gpu_count)))
    if unhealthy is not None:
        inventory = sick(inventory, builders.uuid(unhealthy))
    return slice_specs(pool_of(inventory))


class Server(SimApiServer):
    """Takes operations; nothing goes over a network."""

    def __init__(self) -> None:
        super().__init__(V1_37)

    def slices(self) -> tuple[dict[str, Any], ...]:
        return self.list(SLICES)

    def apply(self, ops: tuple[SliceOp, ...]) -> None:
        for op in ops:
            match op:
                case CreateSlice(body=body):
                    self.create(SLICES, deepcopy(dict(body)))
                case ReplaceSlice(body=body):
                    self.replace(SLICES, deepcopy(dict(body)))
                case DeleteSlice(name=name, uid=uid, resource_version=version):
                    found = self.get(SLICES, name)["metadata"]
                    assert (found["uid"], found["resourceVersion"]) == (uid, version)
                    self.delete(SLICES, name)

    def converge(self, desired: Specs, owner: str = OWNER) -> tuple[SliceOp, ...]:
        ops = reconcile(desired, self.slices(), owner)
        self.apply(ops)
        assert reconcile(desired, self.slices(), owner) == ()
        self.check(desired)
        return ops

    def check(self, desired: Specs) -> None:
        """What a scheduler that reads the pool relies on."""
        own = [each for each in self.slices() if each["spec"]["pool"]["name"] == builders.NODE]
        assert len({each["spec"]["pool"]["generation"] for each in own}) == 1
        assert {each["spec"]["pool"]["resourceSliceCount"] for each in own} == {len(own)}
        assert all(same_spec(want, have["spec"]) for want, have in zip(desired, own, strict=True))

    def generations(self) -> set[int]:
        return {each["spec"]["pool"]["generation"] for each in self.slices()}


def test_reconcile_creates_indexed_slices_when_there_are_none() -> None:
    server = Server()
    desired = specs(70)
    ops = server.converge(desired)
    assert all(isinstance(op, CreateSlice) for op in ops)
    first = server.slices()[0]
    assert [each["metadata"]["name"][:6] for each in server.slices()] == [
        "00000-",
        "00001-",
        "00002-",
    ]
    assert first["metadata"]["generateName"] == "00000-gpuslice.io-node-a-"
    assert first["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": OWNER, "controller": True}
    ]
    assert server.generations() == {1}


def test_reconcile_changes_one_slice_in_place_when_only_it_differs() -> None:
    server = Server()
    server.converge(specs(70))
    ops = server.converge(specs(70, unhealthy=0))
    assert [type(op) for op in ops] == [ReplaceSlice]
    assert server.generations() == {1}


def test_reconcile_moves_all_slices_to_a_new_generation_when_several_differ() -> None:
    server = Server()
    server.converge(specs(70))
    ops = server.converge(specs(65))
    assert [type(op) for op in ops] == [ReplaceSlice] * 3
    assert server.generations() == {2}


@pytest.mark.parametrize(("before", "after"), [(10, 70), (70, 10), (70, 40), (40, 70), (70, 0)])
def test_reconcile_converges_when_the_number_of_slices_changes(before: int, after: int) -> None:
    server = Server()
    server.converge(specs(before))
    server.converge(specs(after))


def test_reconcile_heals_when_one_of_several_slices_was_deleted() -> None:
    server = Server()
    server.converge(specs(70))
    server.delete(SLICES, server.slices()[1]["metadata"]["name"])
    server.converge(specs(70))
    assert server.generations() == {2}


def test_reconcile_replaces_owner_when_the_node_was_created_again() -> None:
    server = Server()
    server.converge(specs(70))
    ops = server.converge(specs(70), "another-uid")
    assert [type(op) for op in ops] == [ReplaceSlice] * 3
    owners = [owner for each in server.slices() for owner in each["metadata"]["ownerReferences"]]
    assert [owner["uid"] for owner in owners] == ["another-uid"] * 3
    assert server.generations() == {1}


def test_reconcile_deletes_only_own_leftovers_when_others_publish_too() -> None:
    server = Server()

    def create(name: str, *, driver: str, node: str, pool: str) -> None:
        (spec,) = specs(0)
        spec |= {"driver": driver, "nodeName": node}
        spec["pool"] = {"name": pool, "generation": 9, "resourceSliceCount": 1}
        server.create(SLICES, {"metadata": {"name": name}, "spec": spec})

    create("old-pool", driver=builders.DRIVER, node=builders.NODE, pool="old")
    create("other-driver", driver="gpu.example.com", node=builders.NODE, pool=builders.NODE)
    create("other-node", driver=builders.DRIVER, node="node-b", pool="node-b")
    create("without-index", driver=builders.DRIVER, node=builders.NODE, pool=builders.NODE)
    ops = reconcile(specs(1), server.slices(), OWNER)
    deleted = [op.name for op in ops if isinstance(op, DeleteSlice)]
    assert deleted == ["old-pool", "without-index"]
    (created,) = (op for op in ops if isinstance(op, CreateSlice))
    # Above the generation that consumers may have seen.
    assert created.body["spec"]["pool"]["generation"] == 10


@pytest.mark.parametrize("pool", [builders.NODE, "old"])
def test_reconcile_deletes_only_the_leftover_when_it_is_older_or_of_another_pool(
    pool: str,
) -> None:
    server = Server()
    server.converge(specs(70))
    server.converge(specs(65))
    (spec,) = specs(0)
    # Sorts before the slice in its place; its generation counts only in a pool of its own.
    generation = 1 if pool == builders.NODE else 9
    spec["pool"] = {"name": pool, "generation": generation, "resourceSliceCount": 1}
    server.create(SLICES, {"metadata": {"name": "00000-a"}, "spec": spec})
    ops = server.converge(specs(65))
    assert [op.name for op in ops if isinstance(op, DeleteSlice)] == ["00000-a"]
    assert len(ops) == 1


def test_reconcile_keeps_time_of_taints_when_they_stay() -> None:
    server = Server()
    server.converge(specs(2, unhealthy=0))
    stored = server.slices()[0]
    stored["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"
    server.replace(SLICES, stored)
    assert reconcile(specs(2, unhealthy=0), server.slices(), OWNER) == ()
    server.converge(specs(3, unhealthy=0))
    taints = server.slices()[0]["spec"]["devices"][0]["taints"]
    assert taints[0]["timeAdded"] == "2026-01-01T00:00:00Z"


def test_reconcile_keeps_metadata_of_others_when_it_replaces() -> None:
    server = Server()
    server.converge(specs(1))
    stored = server.slices()[0]
    stored["metadata"]["labels"] = {"a": "b"}
    stored["metadata"]["ownerReferences"].append(
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "d"}
    )
    server.replace(SLICES, stored)
    server.converge(specs(2))
    metadata = server.slices()[0]["metadata"]
    assert metadata["labels"] == {"a": "b"}
    assert len(metadata["ownerReferences"]) == 2


def test_reconcile_makes_a_legal_generate_name_when_the_node_name_is_long() -> None:
    (spec,) = specs(0)
    spec["nodeName"] = spec["pool"]["name"] = "a" * 39 + "." + "b" * 100
    (op,) = reconcile((spec,), (), OWNER)
    assert isinstance(op, CreateSlice)
    assert op.body["metadata"]["generateName"] == f"00000-gpuslice.io-{'a' * 39}-"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "delete", "owner"]),
        st.integers(0, 140),
        st.none() | st.integers(0, 40),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_reconcile_converges_when_anything_happened_before(
    steps: list[tuple[str, int, int | None]],
) -> None:
    server = Server()
    owner = OWNER
    for action, number, unhealthy in steps:
        match action:
            case "publish":
                desired = specs(number, unhealthy=unhealthy)
                # A writer that is stopped halfway.
                ops = reconcile(desired, server.slices(), owner)
                server.apply(ops[: number % (len(ops) + 1)])
            case "delete":
                for each in server.slices()[: 1 + number % 2]:
                    server.delete(SLICES, each["metadata"]["name"])
            case _:
                owner = f"uid-{number}"
    server.converge(specs(steps[-1][1]), owner)


def test_dropped_fields_are_named_without_indices_when_the_server_lost_some() -> None:
    (sent,) = specs(2, unhealthy=0)
    stored = deepcopy(sent)
    assert dropped_fields(sent, stored) == ()
    for device in stored["devices"]:
        device.pop("allowMultipleAllocations", None)
        device.pop("taints", None)
        for capacity in device["capacity"].values():
            capacity.pop("requestPolicy", None)
    lost = dropped_fields(sent, stored)
    assert "devices.allowMultipleAllocations" in lost
    assert "devices.capacity.memory.default" in lost
    assert "devices.taints" in lost
