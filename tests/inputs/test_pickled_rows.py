"""Input that the driver has pickled for its agents, and that others may have changed."""

from __future__ import annotations

import errno
import os
import pickle
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd
import pytest

from daskprs._core.mini_batch import MiniBatch
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.pickled_rows import PickledReader
from daskprs._inputs.source.read_options import ReadOptions
from daskprs._system.regular_files import keep_to_owner, owner_in
from daskprs.errors import JobFolderError
from tests.support.canary import Canary

if TYPE_CHECKING:
    from pathlib import Path

ANOTHER = 54321


@pytest.mark.attack
@pytest.mark.parametrize("how", ["group", "all", "owner", "link"])
def test_input_that_others_may_write_is_not_loaded(tmp_path: Path, how: str) -> None:
    """Neither by an agent, nor by the driver for a node without the folder."""
    canary, file = tmp_path / "canary", tmp_path / "frame.pickles"
    file.write_bytes(pickle.dumps(Canary(canary)))
    file.chmod({"group": 0o664, "all": 0o646}.get(how, 0o644))
    if how in ("owner", "link"):
        if os.geteuid() != 0:
            pytest.skip("only root gives files to another user")
        os.chown(file, ANOTHER, ANOTHER)
    if how == "link":
        file = file.rename(tmp_path / "planted")
        (tmp_path / "frame.pickles").symlink_to(file)
    reader, length = PickledReader(tmp_path, owner_in(tmp_path)), file.stat().st_size
    mini_batch = MiniBatch(0, ("frame.pickles", 0, length), "")
    for read in (lambda: reader.load(mini_batch), lambda: reader.pack(mini_batch.piece)):
        with pytest.raises(JobFolderError, match=r"(has made|may write to) it, and it has"):
            read()
    assert not canary.exists()
    if how in ("group", "all"):
        file.chmod(0o644)
        reader.load(mini_batch)
        assert canary.exists()  # what only its owner writes is loaded


def test_a_mount_without_owners_and_modes_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the mode of a file says nothing, and a job over objects has to run."""

    class Squashed(NamedTuple):
        st_uid: int = 65534
        st_mode: int = 0o100777

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "not on this mount")

    with monkeypatch.context() as mount:
        mount.setattr(os, "fchmod", refuse)
        with (tmp_path / "frame.pickles").open("wb") as file:
            keep_to_owner(file)
            pickle.dump(["a"], file)
        assert owner_in(tmp_path) == os.geteuid()
        mount.setattr(os, "fstat", lambda _: Squashed())
        assert owner_in(tmp_path) is None
    (tmp_path / "frame.pickles").chmod(0o777)
    length = (tmp_path / "frame.pickles").stat().st_size
    mini_batch = MiniBatch(0, ("frame.pickles", 0, length), "")
    assert PickledReader(tmp_path, None).load(mini_batch) == ["a"]
    assert owner_in(tmp_path / "none") == os.geteuid()


BY_KEY = ReadOptions(partition_keys=("name",))
TEN_ROWS = ReadOptions(mini_batch_size="10 rows")


@pytest.mark.parametrize("reading", [BY_KEY, TEN_ROWS], ids=["by key", "in slices"])
def test_categories_are_not_in_each_mini_batch(tmp_path: Path, reading: ReadOptions) -> None:
    """Else, a customer in each would make a file that grows with the square of the customers."""
    names = pd.Index([f"customer number {number}" for number in range(500)])
    frame = pd.DataFrame(
        {
            "name": pd.Categorical.from_codes(range(500), names, ordered=True),
            "city": pd.Categorical(["Rome", None] * 250),
            "object": [(number,) for number in range(500)],
        }
    )
    source = open_source(frame, reading)
    source.prepare(tmp_path)
    reader, size = pickle.loads(pickle.dumps(source.reader())), 0
    for one in source.mini_batches():
        size += one.size_bytes or 0
        first = one.row_lower_bound or 0
        wanted = frame.iloc[first : first + (one.items or 0)].reset_index(drop=True)
        pd.testing.assert_frame_equal(reader.load(one), wanted)
        far = reader.unpack(one.piece, reader.pack(one.piece))
        pd.testing.assert_frame_equal(far, wanted)
    assert size < (1 << 20)
