"""Going on with a job: with what failed, with what is new, with what has changed on purpose."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import pandas as pd
import pyarrow.parquet as pq
import pytest

import daskprs
from daskprs._job.job import Job
from daskprs._job.request import check_call
from daskprs._options.run_options import RunOptions
from daskprs.errors import JobChanged, JobFolderError

if TYPE_CHECKING:
    from tests.support.copying import Place

pytestmark = pytest.mark.usefixtures("inline")


@pytest.mark.processes
def test_only_what_failed_is_run_and_its_rows_are_put_in_their_places(place: Place) -> None:
    """By a script that was mended; what is published is that of a serial run."""
    place.add("a", "b", "c", "d")
    place.spoil("b", "d")
    place.run()
    assert place.output() == place.serial()
    assert {*place.ran()} == {*"abcd"}
    place.script.write_text(place.script.read_text().replace("is bad", "is worse"))
    place.mend()
    place.spoil("d")
    result = place.run(resume="failed")
    assert {*place.ran()} == {*"bd"}
    assert place.output() == place.serial()
    assert result.mini_batches == (4, 3, 1)
    assert result.failed["error"].tolist() == ["ValueError: d is worse"]
    place.mend()
    place.run(resume="failed", allowed_failed_count=0)
    assert place.ran() == ["d"]
    assert place.output() == place.serial()
    assert not place.failed.exists()


def test_a_failure_among_what_failed_leaves_the_output_and_what_succeeded(place: Place) -> None:
    """Nothing is published; the next try does only what is left of it."""
    place.add("a", "b", "c")
    place.spoil("a", "c")
    place.run()
    before, _ = place.output(), place.ran()
    place.mend()
    place.spoil("c")
    with pytest.raises(daskprs.ParallelRunFailed):
        place.run(resume="failed", allowed_failed_count=0, process_count_per_node=1)
    assert place.output() == before
    assert {*place.ran()} == {*"ac"}
    place.mend()
    place.run(resume="failed", allowed_failed_count=0)
    assert place.ran() == ["c"]
    assert place.output() == place.serial()


def test_a_job_that_has_not_come_to_its_end_is_resumed_as_a_whole(place: Place) -> None:
    """What failed in it is not all that is left."""
    place.add("a", "b", "c")
    place.spoil("a")
    with pytest.raises(daskprs.ParallelRunFailed):
        place.run(allowed_failed_count=0, process_count_per_node=1)
    with pytest.raises(JobFolderError, match=r"has not come to its end.*resume=True"):
        place.run(resume="failed")


def test_a_job_that_is_to_go_on_in_a_new_folder_starts(place: Place) -> None:
    """The same call begins and goes on; the log says which of both it did."""
    place.add("a", "b")
    for verb in ("starts", "resumes"):
        result = place.run(resume=True)
        lines = (result.logs_dir / "sys" / "master_role.txt").read_text().splitlines()
        (*_, last) = [line for line in lines if re.search(r"\|job \S+ (starts|resumes): ", line)]
        assert f" {verb}: " in last


def test_typed_rows_of_what_failed_come_in_their_places(place: Place) -> None:
    """Without text, too."""
    place.add("a", "b", "c")
    place.spoil("b")
    place.run(output_dir=None)
    place.mend()
    rows = place.run(output_dir=None, resume="failed").to_pandas()
    assert rows["result"].tolist() == place.serial().splitlines()
    place.add("ab")
    rows = place.run(output_dir=None, resume="extend").to_pandas()
    assert rows["result"].tolist() == place.serial().splitlines()


def test_only_new_files_are_run_wherever_they_sort(place: Place) -> None:
    """The numbers of all mini-batches shift; nothing is run twice."""
    place.add("b", "d", "f")
    place.run()
    place.ran()
    place.add("a", "c", "e", "g")
    result = place.run(resume="extend")
    assert place.ran() == ["a", "c", "e", "g"]
    assert place.output() == place.serial()
    assert result.mini_batches == (7, 7, 0)
    place.add("0")
    place.run(resume="extend")
    assert place.ran() == ["0"]
    assert place.output() == place.serial()
    place.run(resume=True)
    assert place.ran() == []


def test_what_failed_before_an_extension_is_left_alone_and_counts(place: Place) -> None:
    """It has a new number, under which it can be run by itself."""
    place.add("b", "d")
    place.spoil("d")
    place.run()
    place.ran()
    place.add("a", "c")
    result = place.run(resume="extend")
    assert place.ran() == ["a", "c"]
    assert result.mini_batches == (4, 3, 1)
    assert result.failed["mini_batch"].tolist() == [3]
    assert result.failed["label"].tolist() == ["d"]
    with pytest.raises(daskprs.ParallelRunFailed, match="allowed_failed_count=0"):
        place.run(resume="extend", allowed_failed_count=0)
    place.mend()
    place.run(resume="failed", allowed_failed_count=0)
    assert place.ran() == ["d"]
    assert place.output() == place.serial()


def test_files_that_have_changed_or_gone_are_named_unless_accepted(place: Place) -> None:
    """Then they run again, or their rows leave the output."""
    place.add("a", "b", "c")
    place.run()
    place.ran()
    (place.input / "b").write_text("something else")
    (place.input / "c").unlink()
    place.add("d")
    with pytest.raises(JobChanged) as refused:
        place.run(resume="extend")
    told = str(refused.value)
    assert f"{place.input / 'b'} has changed" in told
    assert f"{place.input / 'c'} is gone" in told
    assert f"{place.input / 'd'}" not in told
    assert "accept_changes='input'" in told
    place.run(resume="extend", accept_changes="input")
    assert place.ran() == ["b", "d"]
    assert place.output() == place.serial()


def test_a_change_of_the_script_is_refused_unless_it_is_accepted(place: Place) -> None:
    """Then what is done stays, and from then on it is the script of the job."""
    place.add("a", "b", "c")
    place.spoil("c")
    with pytest.raises(daskprs.ParallelRunFailed):
        place.run(allowed_failed_count=0, process_count_per_node=1)
    place.ran()
    old = place.script.read_text()
    new = old.replace("raise ValueError", "rows.append('c is mended') or print")
    place.script.write_text(new)
    with pytest.raises(JobChanged, match=r"copy\.py has changed(.|\n)*accept_changes='script'"):
        place.run(resume=True)
    place.run(resume=True, accept_changes="script")
    assert place.ran() == ["c"]
    assert place.output() == place.serial() + "c is mended\nc content of c\n"
    place.run(resume=True)
    place.script.write_text(old)
    with pytest.raises(JobChanged):
        place.run(resume=True)


def test_an_input_that_was_among_the_files_of_the_script_is_no_change(tmp_path: Path) -> None:
    """It lay beside the script all the time; what else is gone from there is named as before."""
    home = tmp_path / "home"
    (home / "more").mkdir(parents=True)
    names = ["jan.csv", "feb.csv", "more/mar.csv"]
    for name in names:
        (home / name).write_text(f"a\n{name}\n")
    (home / "helper.py").touch()
    (home / "score.py").write_text("def run(rows):\n    return list(rows['a'])\n")

    def lines(*data: str, **options: Any) -> set[str]:
        result = daskprs.parallel_run(
            [str(home / one) for one in data],
            home / "score.py",
            job_dir=tmp_path / "job",
            output_dir=tmp_path / "out",
            process_count_per_node=1,
            **options,
        )
        return set(Path(str(result.output_file)).read_text().split())

    assert lines("jan.csv") == {"jan.csv"}
    assert lines("jan.csv", "feb.csv", resume="extend") == {"jan.csv", "feb.csv"}
    assert lines("jan.csv", "feb.csv", "more", resume="extend") == set(names)
    assert lines("jan.csv", resume=True, accept_changes="input") == {"jan.csv"}
    assert lines("more", resume=True, accept_changes="input") == {"more/mar.csv"}
    (home / "helper.py").unlink()
    with pytest.raises(JobChanged, match=r"folder, helper\.py is gone\nPut"):
        lines("jan.csv", "more", resume="extend")


def test_only_keys_that_gained_rows_are_run(place: Place) -> None:
    """And new ones; wherever in the input their rows lie, and in whatever order they appear."""
    seen = place.home / "seen"

    def by_key(rows: pd.DataFrame) -> list[str]:
        key = rows["key"].iloc[0]
        with seen.open("a") as file:
            file.write(f"{key} ")
        return [f"{key} {','.join(rows['word'])}"]

    def run(**options: Any) -> str:
        result = daskprs.parallel_run(
            str(place.input),
            by_key,
            partition_keys="key",
            job_dir=place.home / "job",
            output_dir=place.home / "out",
            progress=False,
            **options,
        )
        assert result.output_file is not None
        return result.output_file.read_text()

    for name, text in {"b.csv": "x,one\ny,two\nx,three\n", "d.csv": "z,four\n"}.items():
        (place.input / name).write_text(f"key,word\n{text}")
    assert run() == "x one,three\ny two\nz four\n"
    assert sorted(seen.read_text().split()) == ["x", "y", "z"]
    seen.unlink()
    (place.input / "a.csv").write_text("key,word\nz,zero\nw,new\n")
    assert run(resume="extend") == "z zero,four\nw new\nx one,three\ny two\n"
    assert sorted(seen.read_text().split()) == ["w", "z"]


def test_a_new_file_that_changes_the_types_of_a_table_is_refused(place: Place) -> None:
    """What is done was made with the old ones."""
    (place.input / "a.csv").write_text("n\n1\n")
    options: dict[str, Any] = {"mini_batch_size": None, "input_type": "table"}
    place.script.write_text("def run(rows):\n    return rows\n")
    place.run(**options)
    (place.input / "b.csv").write_text("n\n1.5\n")
    with pytest.raises(JobChanged, match="schema n was 'int64' and is 'float64'"):
        place.run(resume="extend", **options)


def test_options_that_are_changed_on_purpose_keep_what_is_cut_as_before(place: Place) -> None:
    """Arguments keep everything; another size keeps the lists of files that are the same."""
    place.add("a", "b", "c")
    place.run(mini_batch_size=2)
    place.ran()
    with pytest.raises(JobChanged, match=r"accept_changes='options'"):
        place.run(resume=True, mini_batch_size=2, arguments=["--fast"])
    place.run(resume=True, mini_batch_size=2, arguments=["--fast"], accept_changes="options")
    assert place.ran() == []
    place.run(resume=True, mini_batch_size=1, accept_changes="options")
    assert place.ran() == ["a", "b"]  # c was alone in its list already
    assert place.output() == place.serial()


def letters(rows: pd.DataFrame) -> list[str]:
    """Note which rows were given, and return them as one line."""
    word = "".join(rows["letter"])
    with Path(rows["noted"].iloc[0]).open("a") as noted:
        noted.write(f"{word} ")
    return [word]


def frame_of(word: str, folder: Path) -> pd.DataFrame:
    """Return a row for each letter; capitals are one key, the others another."""
    case = ["upper" if letter.isupper() else "lower" for letter in word]
    return pd.DataFrame({"letter": list(word), "case": case, "noted": str(folder / "noted")})


def lines_of(folder: Path, data: Any, **options: Any) -> tuple[list[str], list[str]]:
    """Return the output of a job over letters, and which mini-batches it ran."""
    given = {"job_dir": folder / "job", "output_dir": folder / "out", "progress": False}
    result = daskprs.parallel_run(data, letters, **given, **options)
    assert result.output_file is not None
    noted = folder / "noted"
    ran = sorted(noted.read_text().split()) if noted.exists() else []
    noted.unlink(missing_ok=True)
    return result.output_file.read_text().split(), ran


def test_a_frame_grows_by_its_keys(tmp_path: Path) -> None:
    """The rows of a key are told to be the same by content, wherever they lie in the frame."""
    keyed = {"partition_keys": "case"}
    lines_of(tmp_path, frame_of("aBcD", tmp_path), **keyed)
    grown = frame_of("BaecD", tmp_path)
    assert lines_of(tmp_path, grown, **keyed, resume="extend") == (["BD", "aec"], ["aec"])


def test_a_frame_without_keys_does_not_grow(tmp_path: Path) -> None:
    """It has no parts that could be told to be the same; a new run over it has to be accepted."""
    lines_of(tmp_path, frame_of("ab", tmp_path))
    grown = frame_of("abc", tmp_path)
    with pytest.raises(JobChanged, match="the rows of the input have changed"):
        lines_of(tmp_path, grown, resume="extend")
    accepted = lines_of(tmp_path, grown, resume="extend", accept_changes="input")
    assert accepted == (["abc"], ["abc"])


@pytest.mark.processes
def test_a_dask_frame_grows_by_its_partitions(tmp_path: Path) -> None:
    """One that has changed, or is gone, is refused."""

    def partitions(*words: str) -> Any:
        meta = frame_of("a", tmp_path)
        return dd.from_map(frame_of, words, folder=tmp_path, meta=meta)

    lines_of(tmp_path, partitions("ab", "c"))
    grown = lines_of(tmp_path, partitions("d", "ab", "e", "c"), resume="extend")
    assert grown == (["d", "ab", "e", "c"], ["d", "e"])
    with pytest.raises(JobChanged, match="a partition of the input has changed"):
        lines_of(tmp_path, partitions("d", "ab", "e"), resume="extend")


def test_budgets_and_tries_count_anew(place: Place) -> None:
    """A resume may fail as often as the run before it."""
    place.add("a", "b", "c")
    place.spoil("a", "b")
    with pytest.raises(daskprs.ParallelRunFailed):
        place.run(allowed_failed_count=1, process_count_per_node=1)
    place.mend()
    place.spoil("b")
    place.ran()
    result = place.run(resume=True, allowed_failed_count=1)
    assert result.mini_batches == (3, 2, 1)
    assert {*place.ran()} >= {*"ab"}
    (row,) = pq.read_table(place.failed).to_pylist()
    assert [one["charged"] for one in row["attempts"] if one["run"] == 2].count(True) == 2


def test_a_budget_that_earlier_runs_have_exceeded_is_told_with_all_that_has_failed(
    place: Place,
) -> None:
    """As in the counts below: else the next limit would be too low again."""
    place.add("a", "b", "c", "d")
    place.spoil("a", "b", "c", "d")
    options = {"on_error": "isolate", "independent_rows": True}
    place.add("good")
    place.run(**options)
    with pytest.raises(daskprs.ParallelRunFailed) as caught:
        place.run(**options, resume="extend", error_threshold=1)
    failed = caught.value.result.items.failed
    assert failed == 4
    assert f"The job is Failed: {failed} items failed, more than error_threshold=1." in str(
        caught.value
    )


def test_of_two_calls_that_were_checked_for_one_new_folder_the_second_is_refused(
    tmp_path: Path,
) -> None:
    """It waited, or was slow: by now there is another one's job, which is not this one's result."""
    options = RunOptions(process_count_per_node=1)
    frame = pd.DataFrame({"n": [1]})
    first, second = (
        check_call(frame, lambda _, *, word=word: [word], options, job_dir=tmp_path / "job")
        for word in ("first", "second")
    )
    assert Job(first).run().to_pandas()["result"].tolist() == ["first"]
    with pytest.raises(JobFolderError, match="holds a job already"):
        Job(second).run()


def test_a_call_that_is_made_again_hears_of_its_folder_and_its_output_at_once(
    tmp_path: Path,
) -> None:
    """To mend one of them alone would lead to the other one."""
    frame = pd.DataFrame({"n": [1]})
    given: dict[str, Any] = {"output": tmp_path / "out.csv", "start_method": "inline"}
    given |= {"job_dir": tmp_path / "job", "progress": False}
    daskprs.parallel_run(frame, lambda rows: rows, **given)
    told = r"holds a job already\. Go on with it by resume=True(.|\n)*out\.csv exists"
    with pytest.raises(JobFolderError, match=told):
        daskprs.parallel_run(frame, lambda rows: rows, **given)
