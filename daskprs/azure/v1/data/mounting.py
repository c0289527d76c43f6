"""Paths at which scripts expect their side inputs: links, while a step runs."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextmanager
def mounted(places: Mapping[str, str]) -> Iterator[None]:
    """Create links at the given paths to the data, for a block.

    Raises
    ------
    OptionError
        When something else is at a path.

    """
    made = []
    try:
        for path, place in places.items():
            link = Path(path)
            if link.resolve() == Path(place).resolve():
                continue
            try:
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(Path(place).absolute())
            except OSError as error:
                told = f"as_mount({path!r}): the link to {place} cannot be made: {error}."
                msg = f"{told} Leave the path out: arguments tell a script where its input is."
                raise OptionError(msg) from error
            made.append(link)
        yield
    finally:
        for link in made:
            link.unlink(missing_ok=True)
