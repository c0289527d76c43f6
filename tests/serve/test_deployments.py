"""The choice of a deployment for a request."""

from __future__ import annotations

from collections import Counter

import pytest

from daskprs._serve.deployment import Deployments, ServedDeployment
from daskprs.errors import OptionError


class Named(ServedDeployment):
    """A deployment that has a name."""

    def __init__(self, name: str) -> None:
        self.name = name


KNOWN = [Named("a"), Named("b"), Named("c")]


def test_traffic_is_divided_by_the_ids_of_requests() -> None:
    """An id leads to the same deployment each time, also in another service; a name wins."""
    one, other = (Deployments(KNOWN, traffic={"a": 70, "b": 30}) for _ in range(2))
    ids = [str(number) for number in range(2000)]
    chosen = [one.chosen(None, each).name for each in ids]
    assert chosen == [other.chosen(None, each).name for each in ids]
    counts = Counter(chosen)
    assert counts.keys() == {"a", "b"}
    assert 1300 < counts["a"] < 1500
    assert one.chosen("c", "1").name == "c"
    assert one.chosen(None).name in {"a", "b"}


def test_deployments_without_a_default_are_told_at_the_start() -> None:
    """Each request has to name one then."""
    assert "Give --default NAME, or --traffic: there are a, b, c." in Deployments(KNOWN).warning
    for given in ({"default": "a"}, {"traffic": {"a": 100}}):
        assert not Deployments(KNOWN, **given).warning
    assert not Deployments(KNOWN[:1]).warning


@pytest.mark.parametrize(
    ("traffic", "default", "told"),
    [
        ({"a": 70, "b": 20}, None, "make 90"),
        ({"a": 70, "d": 30}, None, "unknown deployment"),
        ({"a": 100}, "b", "--traffic says already"),
    ],
)
def test_a_division_that_does_not_work_out_is_refused(
    traffic: dict[str, int], default: str | None, told: str
) -> None:
    """Before anything is served."""
    with pytest.raises(OptionError, match=told):
        Deployments(KNOWN, default, traffic)
