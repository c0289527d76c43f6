"""A service of light jobs for tests that leave it as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.services import LightService

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightService]:
    """Yield a service that is shared by the tests of a module."""
    with LightService(tmp_path_factory.mktemp("service")) as one:
        yield one
        log = one.home.joinpath("service.txt").read_text()
    assert "Traceback" not in log, log
