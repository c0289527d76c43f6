"""How a job is resumed: which mini-batches run, and which changes are accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from daskprs.errors import JobFolderError, Option
from daskprs.output.journal.commits import digest_of
from daskprs.output.journal.fingerprint import no_input
from daskprs.output.journal.renumbering import renumbered

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from daskprs.core.mini_batch import MiniBatch
    from daskprs.folders.job_folder import JobFolder
    from daskprs.output.journal.commits import CommitTable
    from daskprs.output.journal.history import GivenUp
    from daskprs.output.journal.renumbering import Renumbering

Runs = Literal["all that is left", "what is new", "what failed"]

RUNS: dict[bool | str, Runs] = {
    True: "all that is left",
    "extend": "what is new",
    "failed": "what failed",
}
"""Values of the option `resume`."""


class Resumption(NamedTuple):
    """How a job is resumed."""

    plan: Callable[[], Iterator[MiniBatch]]
    """Makes the current plan, from the start."""
    runs: Runs = "all that is left"
    accepted: Collection[str] = ()
    """Parts of the fingerprint that may have changed."""
    is_input: Callable[[str], bool] = no_input
    """Whether a file in the script's folder is input now, so that it is none of the script's."""

    @property
    def extends(self) -> bool:
        """Whether the input may have grown."""
        return self.runs == "what is new"

    @property
    def accepts(self) -> set[str]:
        """Parts that may have changed: a mended script may run the failed mini-batches."""
        return {*self.accepted, *(["script"] if self.runs == "what failed" else [])}

    def renumber(
        self,
        folder: JobFolder,
        commits: CommitTable,
        given_up: dict[int, GivenUp],
    ) -> Renumbering | None:
        """Renumber settled mini-batches to the current plan, and drop those no longer in it.

        This is always done. A check whether the plan has changed would have to trust the record of
        the last plan: if a driver died while it wrote that record, rows would be doubled.

        Returns
        -------
        Renumbering or None
            The old and the new numbers; None if no number has changed.

        Raises
        ------
        JobFolderError
            When only what failed is to be run, and more than that is left.

        """
        if not commits and not given_up and self.runs != "what failed":
            return None  # a new job
        numbers = self._numbers(commits, given_up)
        if self.runs == "what failed" and numbers.left:
            raise JobFolderError(*_unfinished(folder, numbers))
        if not numbers.changes(len(commits) + len(given_up)):
            return None
        there, now = numbers.of(commits.column("index"))
        commits.keep(there)
        commits.set_column("index", now)
        mapped = dict(zip(numbers.before.tolist(), numbers.now.tolist(), strict=True))
        moved = {mapped[index]: one for index, one in given_up.items() if index in mapped}
        given_up.clear()
        given_up.update(moved)
        return numbers

    def _numbers(self, commits: CommitTable, given_up: dict[int, GivenUp]) -> Renumbering:
        import numpy as np

        indexes = np.array([*given_up], np.uint32)
        digests = np.array([digest_of(one.identity) for one in given_up.values()], np.uint64)
        return renumbered(
            np.concatenate([commits.column("index"), indexes]),
            np.concatenate([commits.column("identity"), digests]),
            self.plan(),
        )


def _unfinished(folder: JobFolder, numbers: Renumbering) -> tuple[str | Option, ...]:
    told = (
        f"of {numbers.of_plan} mini-batches of the job in {folder}, {numbers.left} have neither "
        "rows nor failed in the end: it has not come to its end, or its output was moved or "
        "changed. Do all of that by "
    )
    return told, Option("resume", value=True), "."
