"""Keys: the same parts in every process, and rows that are brought together with little memory."""

from __future__ import annotations

import datetime as dt
import enum
import pickle
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from daskprs._inputs.keys import gathering
from daskprs._inputs.keys.dealing import deal_frame, dealt_part
from daskprs._inputs.keys.gathering import Group, gather
from daskprs._inputs.keys.hashing import part_of
from daskprs._inputs.keys.rows import SealedPickleFile
from daskprs._system.seal import new_key
from daskprs.errors import JobFolderError, LoadError
from tests.support.canary import Canary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PARTS = 7
KEY = new_key()


class Colour(enum.Enum):
    """A class whose own hash differs between processes."""

    RED = 1
    BLUE = 2


def parts() -> list[int]:
    """Return the parts of keys of many classes."""
    moment = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    values: list[Any] = ["Ulm", b"Ulm", ("Ulm", 1.0), Colour.RED, moment, moment.date(), None, 7]
    frames = [pd.DataFrame({"key": pd.Series([value], dtype=object)}) for value in values]
    frames.append(pd.DataFrame({"key": ["Ulm", "Aachen", None]}))
    frames.append(pd.DataFrame({"key": pd.Categorical(["Ulm", "Aachen"])}))
    return [int(part) for frame in frames for part in part_of(frame, 1000)]


@pytest.mark.long
def test_every_process_deals_alike() -> None:
    """Whatever the seed of its hashes."""
    code = f"from {__name__} import parts; print(parts())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {f"{parts()}\n"}


EQUAL: list[Sequence[Any]] = [
    (1, 1.0, True, Decimal(1), Fraction(1), np.int8(1), 1 + 0j),
    (10**400, Decimal(10**400)),
    (0.0, -0.0),
    ("Ulm", np.str_("Ulm")),
    ((1, "a"), (1.0, "a")),
    (dt.datetime(2024, 5, 1), pd.Timestamp(2024, 5, 1)),  # noqa: DTZ001 - so they are found
    (
        dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC),
        dt.datetime(2024, 5, 1, 13, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    ),
]


@pytest.mark.parametrize("values", EQUAL)
def test_equal_objects_are_one_part(values: Sequence[Any]) -> None:
    """Also when their classes differ."""
    found = {
        int(part_of(pd.DataFrame({"key": pd.Series([value], dtype=object)}), 1000)[0])
        for value in values
    }
    assert len(found) == 1


def dealt(folder: Path, pieces: Sequence[Any], keys: Sequence[str]) -> list[Path]:
    """Deal pieces out, and return their files."""
    paths = [folder / f"dealt.{number}" for number in range(len(pieces))]
    for path, piece in zip(paths, pieces, strict=True):
        deal_frame(piece, keys, PARTS, path, KEY)
    return paths


def gathered(
    folder: Path, paths: Sequence[Path], keys: Sequence[str], **options: Any
) -> list[tuple[Group, Any]]:
    """Return all groups in order of first appearance, each with its rows."""
    found = []
    for part in range(PARTS):
        places = [dealt_part(str(path), part) for path in paths]
        path = folder / f"keyed.{part}"
        for group in gather(keys, part, places, path, KEY, **options).groups:
            with path.open("rb") as file:
                file.seek(group.offset)
                found.append((group, pickle.load(file)))
    return sorted(found, key=lambda one: one[0])


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
@pytest.mark.parametrize("at_once", [1, 64 << 20])
def test_rows_come_in_input_order(
    tmp_path: Path, kind: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of pieces without rows, and where no two keys fit into memory together."""
    monkeypatch.setattr(gathering, "AT_ONCE_BYTES", at_once)
    random = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "town": pd.array(random.choice(["Ulm", "Aachen", "Zwickau"], 400), "str"),
            "year": pd.array(random.integers(0, 9, 400), "Int64"),
            "row": range(400),
        }
    )
    frame.loc[::17, "town"] = None
    frame.loc[::13, "year"] = None
    pieces: list[Any] = [frame[:150], None, frame[150:151], frame[151:]]
    if kind == "arrow":
        pieces = [piece if piece is None else pa.Table.from_pandas(piece) for piece in pieces]
    keys = ("town", "year")
    found = gathered(tmp_path, dealt(tmp_path, pieces, keys), keys)
    rows = [one if kind == "pandas" else one.to_pandas() for _, one in found]
    expected = [one for _, one in frame.groupby(list(keys), sort=False, dropna=False)]
    assert [list(one["row"]) for one in rows] == [list(one["row"]) for one in expected]
    assert [group.first_row for group, _ in found] == [one["row"].iloc[0] for one in expected]
    if kind == "pandas":
        for one, other in zip(rows, expected, strict=True):
            pd.testing.assert_frame_equal(one, other.reset_index(drop=True))


def test_a_key_that_does_not_fit_is_named_with_its_size(tmp_path: Path) -> None:
    """And with what there is, and what to do."""
    frame = pd.DataFrame({"town": ["Ulm"] * 9_000 + ["Aachen"] * 9, "x": 0.5})
    paths = dealt(tmp_path, [frame], ["town"])
    message = r"rows of the key town=Ulm need [\d,]+ bytes .* may use 100,000 here.*add a column"
    with pytest.raises(LoadError, match=message):
        gathered(tmp_path, paths, ["town"], memory_bytes=100_000)
    assert len(gathered(tmp_path, paths, ["town"], memory_bytes=10_000_000)) == 2


MEMORY = """
import resource, sys
from pathlib import Path
import numpy as np, pandas as pd
from daskprs._inputs.keys.dealing import deal_frame, dealt_part
from daskprs._inputs.keys import gathering
from daskprs._system.seal import new_key

gathering.AT_ONCE_BYTES = 8 << 20
folder, rows, pieces, parts = Path(sys.argv[1]), 100_000, 20, 64
key_of_job = new_key()
random = np.random.default_rng(0)
for number in range(pieces):
    key = np.where(random.random(rows) < 0.5, -1, random.integers(0, 1000, rows))
    frame = pd.DataFrame({"key": key, **{f"x{n}": random.random(rows) for n in range(4)}})
    deal_frame(frame, ["key"], parts, folder / str(number), key_of_job)
del frame, key
paths = [str(folder / str(number)) for number in range(pieces)]
large = max(
    ([dealt_part(path, part) for path in paths] for part in range(parts)),
    key=lambda places: sum(one.length for one in places),
)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
index = gathering.gather(["key"], 0, large, folder / "keyed", key_of_job)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024 / max(group.length for group in index.groups))
"""


@pytest.mark.long
def test_a_key_with_half_of_all_rows_takes_little_more_than_its_rows(tmp_path: Path) -> None:
    """The others of its part are read from the disk again."""
    told = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert float(told.stdout) < 2.5


@pytest.mark.attack
def test_rows_that_another_program_has_put_there_are_not_loaded(tmp_path: Path) -> None:
    """Neither a pickle that was planted, nor one with the checksum of another job."""
    canary, frame = tmp_path / "canary", pd.DataFrame({"town": ["Ulm"] * 9})
    for key in (None, new_key()):
        (path,) = dealt(tmp_path, [frame], ["town"])
        place = next(one for n in range(PARTS) if (one := dealt_part(str(path), n)).length)
        with path.open("r+b") as file:
            file.seek(place.offset)
            if key is None:
                file.write(pickle.dumps(Canary(canary)))
            else:
                SealedPickleFile(file, key).add(Canary(canary))
                place = place._replace(length=file.tell() - place.offset)
        with pytest.raises(JobFolderError, match=r"dealt\.0: its rows are not those that this job"):
            gather(["town"], 0, [place], tmp_path / "keyed", KEY)
    assert not canary.exists()
