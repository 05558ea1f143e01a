"""States of GPUs for those who follow them."""

from __future__ import annotations

from time import monotonic

from dra_driver.model.mps import GpuSharing
from dra_driver.mps.board import PAUSE_S, StateBoard
from tests.builders import uuid

GPU = uuid(0)


def test_watch_lets_a_burst_of_changes_gather() -> None:
    board = StateBoard()
    board.put(GpuSharing(gpu=GPU))
    states = iter(board.watch())
    assert next(states) == (GpuSharing(gpu=GPU),)
    board.put(GpuSharing(gpu=GPU, restarts=1))
    start_s = monotonic()
    assert next(states) == (GpuSharing(gpu=GPU, restarts=1),)
    assert monotonic() >= start_s + PAUSE_S * 0.9


def test_watch_ends_when_it_or_the_board_is_closed() -> None:
    board = StateBoard()
    board.put(GpuSharing(gpu=GPU))
    own, others = board.watch(), board.watch()
    assert next(iter(own)) == (GpuSharing(gpu=GPU),)
    own.close()
    assert list(own) == []
    board.close()
    assert list(others) == []
