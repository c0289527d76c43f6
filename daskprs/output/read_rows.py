"""What `run` returned, read back from the typed spools of a job."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from daskprs.errors import JournalError
from daskprs.output.recovery import committed
from daskprs.output.typed_rows import RESULT, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.job_folder import JobFolder
    from daskprs.output.commits import CommitTable


def read_rows(folder: JobFolder) -> pd.DataFrame | None:
    """Return the typed rows of a job in input order; None when it kept none.

    Raises
    ------
    JournalError
        When some mini-batches returned frames and others lists.

    """
    commits = committed(folder)
    epochs = np.unique(commits.column("typed_epoch"))
    if not any(folder.typed_spool(int(epoch)).exists() for epoch in {*epochs, 1}):
        return None
    frames = list(_frames(folder, commits))
    if not frames:
        return pd.DataFrame()
    of_lists = [list(frame.columns) == [RESULT] for frame in frames]
    if any(of_lists) and not all(of_lists):
        msg = "to_pandas: run() returned frames for some mini-batches and lists for others."
        raise JournalError(msg)
    # A frame without rows says what the columns are, where there is no other; its types would
    # only disturb those of the others.
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled or frames[:1], ignore_index=True)


def _frames(folder: JobFolder, commits: CommitTable) -> Iterator[pd.DataFrame]:
    order = np.argsort(commits.column("index"), kind="stable")
    columns = [commits.column(f"typed_{name}")[order] for name in ("epoch", "offset", "length")]
    with ExitStack() as stack:
        spools = {
            int(epoch): stack.enter_context(folder.typed_spool(int(epoch)).open("rb"))
            for epoch in np.unique(columns[0])
            if epoch
        }
        for epoch, offset, length in zip(*columns, strict=True):
            if length:
                spool = spools[int(epoch)]
                spool.seek(int(offset))
                yield from decode(spool, int(length))
