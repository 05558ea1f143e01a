"""What every SpecStore keeps, in memory and in a folder alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_driver.adapters.cdi_dir import CdiFolder
from dra_driver.errors import AdapterError
from dra_driver.plan.naming import spec_name, spec_prefix
from dra_driver.ports import SpecStore
from tests.builders import DRIVER
from tests.fakes.spec_store import FakeSpecStore

NAME = spec_name(DRIVER, "uid-1")


@pytest.fixture(params=["fake", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SpecStore:
    prefix = spec_prefix(DRIVER)
    if request.param == "fake":
        return FakeSpecStore(prefix=prefix)
    return CdiFolder(tmp_path / "run/cdi", prefix=prefix)


def test_store_is_empty_when_new(store: SpecStore) -> None:
    assert store.names() == ()
    assert not store.holds(NAME, "{}")


def test_store_holds_exactly_what_was_written(store: SpecStore) -> None:
    store.write(NAME, '{"a":1}')
    assert store.holds(NAME, '{"a":1}')
    assert not store.holds(NAME, '{"a":2}')
    assert store.names() == (NAME,)


def test_store_replaces_a_spec_when_written_again(store: SpecStore) -> None:
    store.write(NAME, '{"a":1}')
    store.write(NAME, '{"a":2}')
    assert store.holds(NAME, '{"a":2}')
    assert store.names() == (NAME,)


def test_store_lists_names_in_order(store: SpecStore) -> None:
    for uid in ("b", "c", "a"):
        store.write(spec_name(DRIVER, uid), "{}")
    assert store.names() == tuple(spec_name(DRIVER, uid) for uid in "abc")


def test_store_removes_a_spec_and_a_missing_one_without_error(store: SpecStore) -> None:
    store.write(NAME, "{}")
    store.remove(NAME)
    store.remove(NAME)
    assert store.names() == ()


def test_store_holds_the_same_when_settled(store: SpecStore) -> None:
    store.settle()
    store.write(NAME, "{}")
    store.settle()
    assert store.names() == (NAME,)
    store.remove(NAME)
    store.settle()
    assert store.names() == ()


@pytest.mark.parametrize("name", ["nvidia", "other.io-claim_uid-1"])
def test_store_refuses_names_of_others(store: SpecStore, name: str) -> None:
    with pytest.raises(AdapterError, match="one of this driver's"):
        store.write(name, "{}")
    with pytest.raises(AdapterError, match="one of this driver's"):
        store.remove(name)
