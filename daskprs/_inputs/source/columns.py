"""Names of columns that the caller gives, compared with those that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs.errors import Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN = 20


def check_columns(wanted: Sequence[Any], there: Sequence[Any], option: str) -> None:
    """Reject a name that is not a column; the error gives the nearest names."""
    for name in wanted:
        if name not in there:
            from difflib import get_close_matches  # only an error needs it

            show = str if all(isinstance(one, str) for one in (name, *there)) else repr  # 0 or '0'
            labels = {str(label): show(label) for label in there}
            near = [labels[one] for one in get_close_matches(str(name), labels, n=3)]
            hint = (
                f"Near it: {', '.join(near)}"
                if near
                else f"There are: {', '.join([*labels.values()][:SHOWN])}"
            )
            raise OptionError(Option(option), f": the input has no column {name!r}. {hint}.")


def check_different(
    keys: Sequence[Any], there: Sequence[Any], option: str = "partition_keys"
) -> None:
    """Reject a name that several columns have."""
    for key in keys:
        if list(there).count(key) > 1:
            raise OptionError(Option(option), f": the input has more than one column {key!r}.")
