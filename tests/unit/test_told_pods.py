"""When the kubelet is asked ahead, and which process its answer may be about."""

from __future__ import annotations

from dataclasses import replace
from threading import Event

from dra_driver.checkpoint.told_pods import LONGEST_S, PATIENCE_S, ToldPods
from dra_driver.errors import AdapterError
from dra_driver.model.cuda import ProcessRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.owner import PodClaims
from dra_driver.model.record import Record
from tests.fakes.checkpoint import FakeHook, FakeNode
from tests.unit.hooking import whole

WEB = PodClaims(namespace="team-a", pod="web", container="main")


class Passing(Event):
    """A stop that lets time pass at each wait, does what is due then, and comes after `seconds`."""

    def __init__(self, hook: FakeHook, seconds: float) -> None:
        super().__init__()
        self._hook = hook
        self._end_s = hook.clock.monotonic_s() + seconds

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._hook.clock.advance(timeout)
        return self._hook.clock.monotonic_s() > self._end_s


class Asked:
    """A hook's node whose kubelet is asked."""

    def __init__(self, *, held: bool = True) -> None:
        self.node = FakeNode()
        self.hook = FakeHook(self.node, records=(whole(1),) if held else ())
        self.told = ToldPods(self.hook.world())
        self._start_s = self.hook.clock.monotonic_s()

    def run(self, seconds: float) -> None:
        self.told.run(Passing(self.hook, seconds))

    @property
    def seconds(self) -> list[float]:
        """When it was asked."""
        return [each.at_s - PATIENCE_S - self._start_s for each in self.node.asked]


def test_kubelet_is_asked_ever_more_seldom_while_claims_stay_the_same() -> None:
    asked = Asked()
    asked.run(70.0)
    assert asked.seconds == [1, 2, 4, 8, 16, 32, 48, 64]
    assert asked.seconds[-1] - asked.seconds[-2] == LONGEST_S


def test_kubelet_is_asked_soon_when_claims_have_changed() -> None:
    asked = Asked()

    class Changing(Passing):
        def wait(self, timeout: float | None = None) -> bool:
            ended = super().wait(timeout)
            if asked.seconds[-1:] == [16.0]:
                asked.hook.records = (whole(1), whole(2))
            return ended

    asked.told.run(Changing(asked.hook, 22.0))
    assert asked.seconds == [1, 2, 4, 8, 16, 17, 18, 20]


def test_kubelet_is_not_asked_while_there_are_no_claims() -> None:
    asked = Asked(held=False)
    asked.run(70.0)
    assert asked.seconds == []


def test_kubelet_is_asked_again_when_it_was_away() -> None:
    asked = Asked()
    asked.node.kubelet_away = True
    asked.run(2.0)
    assert asked.told.since(ProcessRef(pid=7, started=0)) == ()
    asked.node.kubelet_away, asked.node.told = False, (WEB,)
    asked.run(2.0)
    assert asked.told.since(ProcessRef(pid=7, started=0)) == (WEB,)


def test_what_was_told_is_about_processes_that_ran_before_it_was_asked() -> None:
    asked = Asked()
    asked.node.told = (WEB,)
    now_s = asked.hook.clock.monotonic_s()
    asked.told.ask(Deadline(now_s + 1.0))
    ticks = int(now_s * 100)
    assert asked.told.since(ProcessRef(pid=7, started=ticks - 1)) == (WEB,)
    # In the same hundredth of a second it may have been asked first.
    assert asked.told.since(ProcessRef(pid=7, started=ticks)) == ()


def test_nothing_is_asked_when_the_journal_cannot_be_read() -> None:
    def unreadable() -> tuple[Record, ...]:
        raise AdapterError("the disk is gone")

    asked = Asked()
    ToldPods(replace(asked.hook.world(), records=unreadable)).run(Passing(asked.hook, 5.0))
    assert asked.seconds == []
