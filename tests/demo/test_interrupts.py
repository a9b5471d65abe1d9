"""Signals end the demo once, and never halfway through what must be whole."""

import os
import signal

import pytest

from sglang_sparse.demo.interrupts import Interrupted, Interrupts


def interrupt(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_block_with_its_status(number: int, status: int) -> None:
    with pytest.raises(Interrupted) as raised, Interrupts():
        interrupt(number)
    assert raised.value.status == status


def test_a_held_signal_waits_for_the_end_of_the_block() -> None:
    done = []

    def block() -> None:
        with Interrupts() as interrupts:
            with interrupts.held():
                interrupt()
                done.append("whole")
            done.append("too far")

    with pytest.raises(Interrupted):
        block()
    assert done == ["whole"]


def test_a_released_part_of_a_held_block_can_be_left() -> None:
    done = []

    def block() -> None:
        with Interrupts() as interrupts, interrupts.held():
            try:
                with interrupts.released():
                    interrupt()
                    done.append("too far")
            finally:
                done.append("cleaned")

    with pytest.raises(Interrupted):
        block()
    assert done == ["cleaned"]


def test_a_second_signal_does_not_stop_the_clean_up() -> None:
    done = []

    def block() -> None:
        with Interrupts():
            try:
                interrupt()
            finally:
                interrupt()
                interrupt(signal.SIGTERM)
                done.append("cleaned")

    with pytest.raises(Interrupted):
        block()
    assert done == ["cleaned"]


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
