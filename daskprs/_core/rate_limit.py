"""The limits of an endpoint that all processes of a job keep together."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any

from daskprs._suggest import did_you_mean, refuses_unknown
from daskprs.errors import Option, OptionError

OPTION = "rate_limit"
MOST = 1e9
"""The highest number of requests or tokens in a minute."""
LONGEST_NAME = 100
NO_PERMITS = (
    "{} gets its processes no more permits for requests (rate_limit), for an error of daskprs. "
    "Report it with these lines, and resume the job without rate_limit:\n{}"
)


def _no_limit(name: str) -> OptionError:
    near = did_you_mean(name, OF_RATE_LIMITS)
    msg = f"{Option(OPTION)}: {name} is none of {', '.join(OF_RATE_LIMITS)}.{near}"
    return OptionError(msg)


@refuses_unknown(_no_limit)
@dataclass(frozen=True, kw_only=True)
class RateLimit:
    """The limits of an endpoint, for the option `rate_limit` of a job.

    All processes of the job, on all nodes, keep them together. The script asks for a permit before
    each request, by ``context.permit()``. It cannot be changed.

    Parameters
    ----------
    requests_per_minute
        Requests in a minute. They are spread: a second's share of them may begin at the same time,
        and at least one.
    tokens_per_minute
        Tokens in a minute, as ``context.permit(tokens=…)`` names them. They are spread likewise.
    in_flight
        Requests at the same time.
    name
        Jobs of one cluster that name the same limit share it: the name of an account, say. If their
        numbers differ, the lowest of each counts while they run. Default: the job has its own.

    Raises
    ------
    OptionError
        For numbers out of range, and where no limit is given.

    """

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    in_flight: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for field in ("requests_per_minute", "tokens_per_minute"):
            value = getattr(self, field)
            is_fine = _is_number(value) and isfinite(value) and 0 < value <= MOST
            if value is not None and not is_fine:
                raise _refused(field, value, f"a number above 0, and at most {MOST:.0e}")
        count = self.in_flight
        if count is not None and not (type(count) is int and count >= 1):
            raise _refused("in_flight", count, "a whole number from 1")
        if self.name is not None and not (
            isinstance(self.name, str) and 0 < len(self.name) <= LONGEST_NAME
        ):
            raise _refused("name", self.name, f"a text of 1 to {LONGEST_NAME} characters")
        if self.requests_per_minute is self.tokens_per_minute is self.in_flight is None:
            msg = (
                f"{Option(OPTION)}: it limits nothing. Give requests_per_minute, tokens_per_minute "
                "or in_flight."
            )
            raise OptionError(msg)

    @property
    def given(self) -> dict[str, Any]:
        """What was given, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def lowest(self, other: RateLimit) -> RateLimit:
        """Return the limit that keeps both."""
        return RateLimit(
            requests_per_minute=_lower(self.requests_per_minute, other.requests_per_minute),
            tokens_per_minute=_lower(self.tokens_per_minute, other.tokens_per_minute),
            in_flight=_lower(self.in_flight, other.in_flight),
            name=self.name,
        )


OF_RATE_LIMITS = tuple(field.name for field in fields(RateLimit))
"""The names of what a limit is made of."""


def _lower(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else min(one, other)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _refused(field: str, value: Any, rule: str) -> OptionError:
    msg = f"{Option(OPTION)}: {field}={value!r} must be {rule}."
    return OptionError(msg)
