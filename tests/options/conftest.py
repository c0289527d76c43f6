"""The options of a site that says nothing."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import dask
import pytest

from daskprs._options.site_defaults import site_defaults

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def nothing_of_the_suite(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take away the default that the whole suite has, and give it back.

    A test that lets Dask read its config anew gets other objects: what was taken out of the old
    ones has to be put into these.
    """
    site_defaults()  # loads them once: they would go with the rest at the end
    before = copy.deepcopy(dask.config.config)
    monkeypatch.delenv("DASK_DASKPRS__REPORT")
    del dask.config.config["daskprs"]["report"]
    yield
    dask.config.config.clear()
    dask.config.config.update(before)
