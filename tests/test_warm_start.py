"""The templates of the suite: what a test starts is forked from one that has imported pandas.

Without them each job of the suite imports pandas, for a second or two of processor time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing

import psutil
import pytest

from daskprs._agent.supervision.zygote import Zygote
from tests.support import warm_start

pytestmark = pytest.mark.skipif(
    "DASKPRS_TESTS_COLD" in os.environ, reason="each process is started as a user's"
)


@pytest.mark.parametrize(
    ("start_method", "preload", "forked"),
    [("fork", (), True), ("fork", ("json",), True), ("spawn", (), False)],
)
def test_a_zygote_that_forks_is_forked(
    start_method: str,
    preload: tuple[str, ...],
    forked: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """With or without packages that it imports."""
    with closing(Zygote(os.environ, start_method, preload)) as zygote:
        words = psutil.Process(zygote._process.pid).cmdline()
    assert (warm_start.__file__ in words) == forked


def test_a_program_is_forked() -> None:
    """If it imports daskprs."""
    code = "import daskprs, psutil; print(psutil.Process().cmdline())"
    words = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert warm_start.__file__ in words
