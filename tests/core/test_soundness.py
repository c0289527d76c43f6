"""What the calls of a process say about it, one after the other and at the same time."""

from __future__ import annotations

from daskprs._core.soundness import Soundness


def test_one_after_the_other_a_success_ends_a_row() -> None:
    """The first failure is one in a sound process."""
    it = Soundness()
    assert it.fail()
    assert not it.fail()
    assert it.in_a_row == 2
    assert it.succeed() == 3
    assert it.in_a_row == 0
    assert it.fail()


def test_a_success_says_nothing_about_what_failed_while_it_was_under_way() -> None:
    """It shows who is to blame for the failure after the last that it knows of."""
    it = Soundness()
    assert it.fail(0)
    assert not it.fail(0)
    assert it.in_a_row == 1  # the second one began before the first failed
    assert it.succeed(0) == 1
    assert it.in_a_row == 1
    assert not it.fail(2)
    assert it.in_a_row == 2
    assert it.succeed(1) == 2
    assert it.in_a_row == 2  # the second failure and the third, which began after it
    assert it.succeed(3) == 4
    assert it.in_a_row == 0
    assert it.fail(3)
