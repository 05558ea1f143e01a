"""Pauses and due times."""

from __future__ import annotations

from itertools import pairwise
from threading import Thread

from dra_driver.loops.alarm import Alarm
from dra_driver.loops.backoff import Backoff, Fights
from tests.fakes.clock import FakeClock


def test_alarm_takes_due_work_once_when_the_earliest_moment_comes() -> None:
    clock = FakeClock()
    alarm = Alarm(clock)
    alarm.ask(5.0)
    alarm.ask(2.0)
    alarm.ask(9.0)
    clock.advance(1.9)
    assert not alarm.wait(0.0)
    clock.advance(0.1)
    assert alarm.wait(0.0)
    clock.advance(100.0)
    assert not alarm.wait(0.0)


def test_alarm_is_not_due_when_it_is_held() -> None:
    clock = FakeClock()
    alarm = Alarm(clock)
    alarm.hold(3.0)
    alarm.ask(0.0)
    assert not alarm.wait(0.0)
    clock.advance(3.0)
    assert alarm.wait(0.0)


def test_alarm_wakes_its_waiter_when_another_thread_asks() -> None:
    clock = FakeClock()
    alarm = Alarm(clock)
    woken: list[bool] = []
    waiter = Thread(target=lambda: woken.append(alarm.wait(3600.0)), name="waiter")
    waiter.start()
    alarm.ask(0.0)
    waiter.join(5.0)
    assert woken == [True]


def test_backoff_doubles_to_its_cap_when_failures_go_on() -> None:
    steady = Backoff(first_s=0.2, cap_s=15.0, spread=lambda: 0.0)
    pauses = [steady.next_s() for _ in range(1000)]
    assert pauses[:3] == [0.2, 0.4, 0.8]
    assert all(earlier <= later for earlier, later in pairwise(pauses))
    assert pauses[-1] == 15.0
    steady.reset()
    assert steady.next_s() == 0.2
    assert Backoff(first_s=2.0, cap_s=9.0, spread=lambda: 1.0).next_s() == 1.0


def test_fights_ask_for_patience_when_another_goes_on() -> None:
    clock = FakeClock()
    fights = Fights(clock, settle_s=0.3, cap_s=30.0)
    pauses = []
    for _ in range(20):
        pauses.append(fights.settle_s())
        fights.count()
    assert pauses[:5] == [0.3, 0.3, 0.3, 0.3, 0.6]
    assert pauses[-1] == 30.0
    clock.advance(60.0)
    assert fights.settle_s() == 0.3
