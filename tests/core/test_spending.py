"""What is used by the script's own count: sums of reports that come late, twice or not at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from daskprs._core.spending import LARGEST, Spending, plain

REPORTS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["process000", "process001"]), st.integers(0, 9)),
    max_size=30,
)


@given(reports=REPORTS)
def test_a_process_counts_with_the_highest_of_its_reports(
    reports: list[tuple[int, str, int]],
) -> None:
    """In whatever order they come, and however often."""
    spending, highest = Spending({"calls": 5}), dict[tuple[int, str], int]()
    for node, process, amount in reports:
        spending.take(node, process, (("calls", float(amount)),))
        highest[node, process] = max(amount, highest.get((node, process), 0))
    assert spending.spent == {"calls": 5 + sum(highest.values())}


def test_what_is_useful_was_spent() -> None:
    """Also where the report of its process was lost with its node."""
    spending = Spending()
    spending.commit([(("calls", 3.0),), None, (("tokens", 1.0),)], [0, 1, 2])
    assert spending.spent == spending.useful == {"calls": 3, "tokens": 1}
    spending.commit([(("calls", 3.0),)], [0], sign=-1)
    assert spending.useful["calls"] == 0


def test_only_what_fits_by_the_mean_may_begin() -> None:
    """Half of it at a time; what is under way counts before it has ended."""
    limits = (("tokens", 100.0), ("calls", 1000.0))
    spending = Spending({"tokens": 20})
    assert spending.room(limits, 5, untried=64) == 64  # nothing was measured
    spending.take(0, "process000", (("tokens", 20.0),))
    spending.end([(("tokens", 10.0),), (("tokens", 10.0),)])
    assert spending.room(limits, 0) == 3  # of six
    assert spending.room(limits, 5) == 1
    assert spending.room(limits, 6) == 0
    spending.take(0, "process000", (("tokens", 50.0),))
    assert spending.room(limits, 3) == 2  # of three: the 30 are those of the three under way
    spending.take(0, "process000", (("tokens", 80.0),))
    assert spending.room(limits, 0) == 0
    assert "100 of 100 tokens, 0 of 1,000 calls" in spending.why_none(limits)


def test_a_resume_begins_only_what_fits_by_the_mean_of_the_runs_before() -> None:
    """Until its own attempts show another one: all calls of all processes begin at once."""
    spending = Spending({"tokens": 70.0}, {"tokens": 60.0}, 6)
    assert spending.room((("tokens", 75.0),), 0, untried=64) == 0
    assert spending.room((("tokens", 100.0),), 0, untried=64) == 2  # of three
    assert spending.room((("tokens", 100.0),), 3, untried=64) == 0
    assert spending.room((("calls", 100.0),), 3, untried=64) == 64
    spending.take(0, "process000", (("tokens", 1.0),))
    spending.end([(("tokens", 1.0),)])
    assert spending.room((("tokens", 100.0),), 0) == 15


def test_what_has_ended_with_its_process_leaves_room_for_what_is_under_way() -> None:
    """Else the mini-batches under way would seem to have used that already."""
    limits = (("tokens", 100.0),)
    spending = Spending()
    spending.take(0, "process000", (("tokens", 40.0),))
    spending.end([(("tokens", 10.0),), (("tokens", 10.0),)], 0, "process000")
    assert spending.room(limits, 2) == 3  # of six
    for _ in range(2):
        spending.lose(0, "process000")
    assert spending.room(limits, 2) == 2  # of four: two more have begun elsewhere
    spending.take(0, "process001", (("tokens", 10.0),))
    assert spending.room(limits, 2) == 2


@given(count=st.integers(2, 200), cents=st.integers(1, 999))
def test_what_fits_exactly_may_begin(count: int, cents: int) -> None:
    """Though sums of fractions are not exact, nor are they shown so."""
    spending, each, used = Spending(), cents / 1000, 0.0
    limits = (("usd", count * cents / 1000),)
    for done in range(1, count):
        used += each
        spending.take(0, "process000", (("usd", used),))
        spending.end([(("usd", each),)])
        assert spending.room(limits, 0) == -(-(count - done) // 2)
        assert spending.why_none(limits).startswith(f"it has used {done * cents / 1000:,g} of ")
    spending.take(0, "process000", (("usd", used + each),))
    spending.end([(("usd", each),)])
    assert spending.room(limits, 0) == 0
    assert spending.higher(limits) == {"usd": plain(2 * limits[0][1])}


def test_what_is_never_counted_limits_nothing() -> None:
    """Once that is known."""
    spending = Spending()
    spending.end([None])
    assert spending.room((("tokens", 5.0),), 10) == LARGEST // 2
