"""The options of a site that says nothing."""

from __future__ import annotations

import dask
import pytest


@pytest.fixture(autouse=True)
def nothing_of_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the default that the whole suite has."""
    monkeypatch.delenv("DASK_DASKPRS__REPORT")
    monkeypatch.delitem(dask.config.config["daskprs"], "report")
