"""`preprocess` and `postprocess`: in processes of their own, with the results of a serial run."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import daskprs
from daskprs._agent.child.entry_script import ScriptFunctions
from daskprs._core import lease_sizes
from daskprs._core.stages import Stages
from daskprs._folders.job_folder import JobFolder
from daskprs._report.log_stream import LogStream
from tests.support.cases import mostly_long
from tests.support.local_servers import LOCAL_SERVERS
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("inline")

SCRIPT = """
import os, signal, time
from pathlib import Path
import numpy as np
import pandas as pd

TIMES = None

def init():
    global TIMES
    TIMES = 2
    print("init in", os.getpid())

def init_preprocess():
    print("init_preprocess in", os.getpid())

def misbehave(what):
    for one in what:
        if one == "raises":
            raise ValueError("a bad row")
        if one == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if one == "hangs":
            time.sleep(1000)
        if one == "ends":
            os._exit(3)

def decode(rows, context):
    misbehave(rows["decode"])
    return {"n": np.array(rows["n"]), "row": rows["row"].tolist(), "of": context.minibatch_index,
            "process": os.getpid()}

def run(batch):
    misbehave(batch["row"])
    n = batch["n"]
    n *= TIMES
    return {**batch, "run": os.getpid()}

def rows(batch, context):
    assert batch["of"] == context.minibatch_index
    if 1_000_000 in batch["n"]:
        misbehave(["dies"])
    return pd.DataFrame({"double": batch["n"], "pre": batch["process"], "run": batch["run"],
                         "post": os.getpid()})
"""
SAYS = """
    import daskprs
    print("run of", batch["of"])
    daskprs.EntryScript().logger.info("run of %02d", batch["of"])
"""
ALL = {"preprocess": "decode", "postprocess": "rows", "preprocess_processes": 2}


def table(rows: int, decode: dict[int, str] | None = None, **columns: Any) -> pd.DataFrame:
    """Return rows, and what some of them do in `decode` and in `run`."""
    at, run = decode or {}, columns.pop("run", {})
    return pd.DataFrame(
        {
            "n": range(rows),
            "decode": [at.get(n, "") for n in range(rows)],
            "row": [run.get(n, "") for n in range(rows)],
        }
        | columns
    )


def score(folder: Path, data: Any, script: Any = SCRIPT, **options: Any) -> Any:
    """Run a job with stages."""
    if isinstance(script, str):
        (folder / "code").mkdir(exist_ok=True)
        path = folder / "code" / "script.py"
        path.write_text(script)
        script = path
    given = {"job_dir": folder / "job", "progress": False, "mini_batch_size": "10 rows", **ALL}
    given["process_count_per_node"] = 1
    return daskprs.parallel_run(data, script, **(given | options))


def doubles(result: Any) -> list[int]:
    """Return the numbers of the output."""
    return [int(one) for one in result.to_pandas()["double"]]


def failed_attempts(folder: Path) -> pd.DataFrame:
    """Return the attempts of the job that failed."""
    attempts = pd.read_csv(JobFolder(folder / "job").attempts)
    return attempts[attempts["Status"] != "RUN_DONE"]


@pytest.mark.processes
def test_each_stage_has_processes_of_its_own(tmp_path: Path) -> None:
    """The order of the rows is that of the input, and what was printed is in their logs.

    The memory of a process is its own.
    """
    large = SCRIPT.replace(
        "n *= TIMES", 'b"1" * (300 << 20 if batch["of"] == 0 else 1)\n    n *= TIMES'
    ).replace("    n = batch", f"{SAYS}    n = batch")
    result = score(tmp_path, table(200), large, include_columns=["n"])
    rows = result.to_pandas()
    assert list(rows["n"]) == list(range(200))
    assert list(rows["double"]) == [2 * n for n in range(200)]
    (run,) = set(rows["run"])
    assert len(set(rows["pre"])) <= 2
    assert run not in {*rows["pre"], *rows["post"]}
    logs = JobFolder(tmp_path / "job").stdout(0, "process000")
    assert logs.read_text().startswith(f"init in {run}\n")
    assert result.stdout(3) == "run of 3\n"
    entries = LogStream(JobFolder(tmp_path / "job")).new(is_last=True)
    logged = [(one.mini_batch, one.text[-2:]) for one in entries if one.what == "logger"]
    assert sorted(logged) == [(n, f"{n:02d}") for n in range(20)]
    stage = logs.with_name(logs.name.replace("000", "000-00"))
    assert stage.read_text().startswith("init_preprocess in ")
    summary = pd.read_csv(JobFolder(tmp_path / "job").process_summary, index_col="Process")
    assert summary.loc["process000", "Peak Memory (MB)"] > 300


def test_without_processes_the_functions_run_one_after_the_other(tmp_path: Path) -> None:
    """As do those of a script that is an object, and functions that are given beside it.

    One may be a coroutine function: a process works on one mini-batch at a time.
    """
    assert doubles(score(tmp_path, table(25), preprocess_processes=None)) == [
        2 * n for n in range(25)
    ]

    async def half(rows: pd.DataFrame) -> Any:
        return rows["n"].to_numpy() / 2

    def run(halves: Any) -> Any:
        return halves + 1

    options = {"preprocess": half, "postprocess": None, "preprocess_processes": None}
    result = score(tmp_path, table(25), run, job_dir=tmp_path / "of function", **options)
    assert list(result.to_pandas().iloc[:, 0]) == [n / 2 + 1 for n in range(25)]


def test_an_error_names_the_stage_that_returned_too_little(tmp_path: Path) -> None:
    """It said that run() did."""
    options = {"preprocess": None, "postprocess": lambda rows: rows[:1], "run_max_try": 1}
    options |= {"preprocess_processes": None, "include_columns": ["n"]}
    with pytest.raises(daskprs.ParallelRunFailed, match=r"postprocess\(\) returned 1 row for a"):
        score(tmp_path, table(3), lambda rows: rows[["decode"]].reset_index(drop=True), **options)


@pytest.mark.processes
def test_functions_beside_a_function_travel(tmp_path: Path) -> None:
    """As in a notebook: with what they use of their surroundings."""
    factor = 3

    def times(rows: pd.DataFrame) -> Any:
        return rows["n"].to_numpy() * factor

    def run(tripled: Any) -> Any:
        return pd.DataFrame({"double": tripled})

    result = score(tmp_path, table(30), run, preprocess=times, postprocess=None)
    assert doubles(result) == [3 * n for n in range(30)]


@pytest.mark.processes
@pytest.mark.parametrize("what", mostly_long(["raises", "dies", "hangs", "ends"], suite=["dies"]))
def test_what_ends_a_decoder_costs_its_mini_batch_and_no_process_of_run(
    what: str, tmp_path: Path
) -> None:
    """Its error names the stage and its process."""
    data = table(100, {31: what})
    options = {"allowed_failed_count": 1, "run_invocation_timeout": 3}
    result = score(tmp_path, data, **options)
    assert result.status == "Completed"
    assert result.mini_batches == (10, 9, 1)
    rows = result.to_pandas()
    assert list(rows["double"]) == [2 * n for n in range(100) if n // 10 != 3]
    assert len(set(rows["run"])) == 1
    failed = failed_attempts(tmp_path)
    assert len(failed) == 3
    assert all(failed["Process"].str.startswith("process000-0"))
    # Three deaths in two places: the words of one process are not those of the next.
    assert not any(failed["Error Message"].str.contains("stderr ends with"))
    words = {"raises": "a bad row", "hangs": "preprocess() exceeded 3 s"}
    assert all(
        failed["Error Message"].str.contains(words.get(what, "during preprocess"), regex=False)
    )


@pytest.mark.processes
@pytest.mark.parametrize("what", mostly_long(["raises", "dies", "hangs"], suite=["dies"]))
def test_a_death_of_run_leaves_all_others_right(what: str, tmp_path: Path) -> None:
    """What had been decoded for it runs in the next process."""
    data = table(100, run={31: what})
    options = {"allowed_failed_count": 1, "run_invocation_timeout": 3, "run_max_try": 2}
    result = score(tmp_path, data, **options)
    assert result.mini_batches == (10, 9, 1)
    assert doubles(result) == [2 * n for n in range(100) if n // 10 != 3]


@pytest.mark.processes
def test_a_death_after_run_is_one_of_postprocess(tmp_path: Path) -> None:
    """And a resume with a mended input runs what is left."""
    data = table(50, n=[*range(20), 500_000, *range(21, 50)])
    result = score(tmp_path, data, run_max_try=1, allowed_failed_count=1)
    assert result.mini_batches == (5, 4, 1)
    assert failed_attempts(tmp_path)["Error Message"].str.contains("during postprocess").all()
    again = score(
        tmp_path,
        data,
        SCRIPT.replace("1_000_000 in", "None is"),
        resume="failed",
        accept_changes=("script",),
    )
    assert doubles(again) == [2 * n for n in data["n"]]


@pytest.mark.processes
def test_stage_processes_see_no_device_whatever_the_job_sees(tmp_path: Path) -> None:
    """Those of `run` see what the user says."""
    seen = 'os.environ["CUDA_VISIBLE_DEVICES"]'
    script = f"""
import os
import pandas as pd
def decode(rows):
    return {seen}
def run(decoded):
    return pd.DataFrame({{"double": [decoded, {seen}]}})
"""
    options = {"environment_variables": {"CUDA_VISIBLE_DEVICES": "3"}, "postprocess": None}
    result = score(tmp_path, table(1), script, **options)
    assert list(result.to_pandas(ignore_index=True)["double"]) == ["-1", "3"]


POISON = """
broken = False

def decode(rows):
    global broken
    if broken or 31 in list(rows["n"]):
        broken = True
        raise RuntimeError("the decoder is broken")
    return rows

def run(rows):
    return rows[["n"]].rename(columns={"n": "double"})
"""


@pytest.mark.processes
def test_a_decoder_that_one_row_breaks_fails_no_innocent(tmp_path: Path) -> None:
    """What fails after it in its process runs again in a new one."""
    options = {"postprocess": None, "preprocess_processes": 1, "allowed_failed_count": 1}
    result = score(tmp_path, table(200), POISON, run_max_try=2, **options)
    assert result.mini_batches == (20, 19, 1)
    assert doubles(result) == [n for n in range(200) if n // 10 != 3]


@pytest.mark.processes
def test_partitions_of_dask_pass_through_the_stages(tmp_path: Path) -> None:
    """At once, and behind a lazy collection."""
    data = dd.from_pandas(table(60), npartitions=3)
    with (
        LocalCluster(2, threads_per_worker=1, processes=False, **LOCAL_SERVERS) as cluster,
        Client(cluster) as client,
    ):
        result = score(tmp_path, data, client=client)
        assert sorted(doubles(result)) == [2 * n for n in range(60)]
        script = tmp_path / "code" / "script.py"
        options = {**ALL, "mini_batch_size": "10 rows", "job_dir": tmp_path / "lazy"}
        meta = dict.fromkeys(("double", "pre", "run", "post"), "int64")
        lazy = daskprs.map_batches(data, script, meta=meta, **options)
        assert list(lazy["double"].compute()) == [2 * n for n in range(60)]
        options = {**ALL, "preprocess": lambda rows: rows["n"] * 3, "postprocess": pd.DataFrame}
        options |= {"job_dir": tmp_path / "given"}
        given = daskprs.map_batches(data, lambda tripled: tripled, meta={"n": "int64"}, **options)
        assert list(given["n"].compute()) == [3 * n for n in range(60)]
        with pytest.raises(daskprs.errors.ScriptError, match="Did you mean decode"):
            daskprs.map_batches(data, script, meta=meta, preprocess="decoed")
        with pytest.raises(daskprs.errors.UsageError, match="preprocess"):
            daskprs.map_batches(data, script, committed=False, preprocess="decode")


KILLED = """
import sys
import pandas as pd
import daskprs

if __name__ == "__main__":
    folder = sys.argv[1]
    table = pd.read_parquet(f"{folder}/table.parquet")
    daskprs.parallel_run(
        table, "code/script.py", mini_batch_size="10 rows", job_dir=f"{folder}/job",
        preprocess="decode", postprocess="rows", preprocess_processes=2,
        process_count_per_node=1, output=f"{folder}/b.csv", progress=False,
    )
"""


@pytest.mark.long
@pytest.mark.processes
def test_a_killed_driver_is_resumed_to_the_same_bytes(tmp_path: Path) -> None:
    """Whole mini-batches are committed, or nothing of them."""
    slow = SCRIPT.replace("    n *= TIMES", "    n *= TIMES; time.sleep(0.05)")
    slow = slow.replace(', "pre": batch', ', "x": batch').replace('batch["process"]', "0")
    slow = slow.replace('batch["run"]', "0").replace('"post": os.getpid()', '"post": 0')
    data = table(300)
    options = {"start_method": "inline", "preprocess_processes": None}
    options |= {"job_dir": tmp_path / "serial", "output": tmp_path / "a.csv"}
    score(tmp_path, data, slow, **options, process_count_per_node=None)
    data.to_parquet(tmp_path / "table.parquet")
    driver = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], cwd=tmp_path)
    journal = JobFolder(tmp_path / "job").journal(1)
    assert poll_for(lambda: journal.exists() and b'["commits"' in journal.read_bytes(), 60)
    assert driver.poll() is None
    driver.kill()
    driver.wait()
    result = score(tmp_path, data, slow, resume=True, output=tmp_path / "b.csv")
    assert result.status == "Completed"
    assert (tmp_path / "b.csv").read_bytes() == (tmp_path / "a.csv").read_bytes()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"preprocess": "os"}, "has no function of that name"),
        ({"preprocess": "decoed"}, "has no function of that name. Did you mean decode"),
        ({"preprocess": "not a name"}, "the name of a function of the script, or a function"),
        ({"preprocess": len}, "given as a function, and the script is a file"),
        ({"python": sys.executable}, "not with preprocess"),
        ({"preprocess": None, "postprocess": None}, "nothing for these processes to do"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    given: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """With the words for the next step."""
    with pytest.raises(daskprs.errors.UsageError, match=re.escape(words)):
        score(tmp_path, table(3), **given)
    assert not (tmp_path / "job").exists()


def test_a_stage_may_have_the_name_of_a_module_that_is_not_there(tmp_path: Path) -> None:
    """Such as one that the script stands in for, also by a coroutine."""
    script = """
import pandas as pd

try:
    import decode_fast as decode
except ImportError:
    async def decode(rows):
        return list(rows["n"])

def run(batch):
    return pd.DataFrame({"double": [2 * n for n in batch]})
"""
    options = {"start_method": "inline", "postprocess": None, "preprocess_processes": None}
    result = score(tmp_path, table(3), script, process_count_per_node=None, **options)
    assert doubles(result) == [0, 2, 4]


def test_a_name_that_an_object_does_not_have_is_refused(tmp_path: Path) -> None:
    """As one that a file does not have."""

    class Script:
        def decode(self, rows: Any) -> Any:
            return rows

        def run(self, rows: Any) -> Any:
            return rows

    with pytest.raises(daskprs.errors.UsageError, match="Did you mean decode"):
        score(tmp_path, table(3), Script(), preprocess="decoed", postprocess=None)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("(n for n in rows)", "preprocess() returned a builtins.generator that cannot travel"),
        ("None", "preprocess() returned None. Return what the next stage is to get."),
    ],
)
def test_what_cannot_travel_is_said(returned: str, words: str, tmp_path: Path) -> None:
    """It is an error of the stage that returned it."""
    script = f"def decode(rows):\n    return {returned}\n\ndef run(rows):\n    return rows\n"
    options = {"postprocess": None, "preprocess_processes": 1, "run_max_try": 1}
    with pytest.raises(daskprs.errors.ParallelRunFailed, match=re.escape(words)):
        score(tmp_path, table(3), script, **options)


@pytest.mark.processes
def test_an_init_that_fails_in_the_stage_processes_is_one_of_the_job(tmp_path: Path) -> None:
    """It is said as any failure of `init` is."""
    script = SCRIPT.replace('print("init_preprocess in", os.getpid())', "raise OSError('no codec')")
    with pytest.raises(daskprs.errors.ParallelRunFailed, match="no codec"):
        score(tmp_path, table(30), script)


def test_an_init_that_fails_beside_run_names_the_function_that_replaces_it() -> None:
    """A model that needs a GPU is of no use there."""

    class Script:
        def init(self) -> None:
            msg = "No CUDA GPUs are available"
            raise RuntimeError(msg)

        def run(self, rows: Any) -> Any:
            return rows

    given = {"stages": Stages(None, "run", None), "is_of_stage": True}
    with pytest.raises(RuntimeError) as caught:
        ScriptFunctions(Script(), "score.py", **given).init()  # type: ignore[arg-type]
    assert "If the script has init_preprocess(), that" in caught.value.__notes__[0]


@pytest.mark.processes
def test_stages_begin_while_the_process_of_run_starts(tmp_path: Path) -> None:
    """A model takes seconds to load: as many mini-batches as may wait are ready by then."""
    script = f"""
import time
from pathlib import Path

def init():
    while len([*Path({str(tmp_path)!r}).glob("decoded-*")]) < 5:  # two processes, and three wait
        time.sleep(0.01)

def init_preprocess():
    pass

def decode(rows):
    Path({str(tmp_path)!r}, f"decoded-{{rows['n'].iloc[0]}}").touch()
    return rows

def run(rows):
    return rows.assign(double=rows["n"] * 2)
"""
    options = {"postprocess": None, "mini_batch_size": "1 row", "init_timeout": 30}
    result = score(tmp_path, table(40), script, **options)
    assert doubles(result) == [*range(0, 80, 2)]


@pytest.mark.processes
def test_the_script_may_keep_what_it_got(tmp_path: Path) -> None:
    """No later mini-batch is written over it, and it may be changed."""
    script = """
import numpy as np
import pandas as pd
kept = []

def decode(rows):
    return {"n": rows["n"].to_numpy(), "many": np.full((100, 100), rows["n"].iloc[0])}

def run(batch):
    kept.append(batch["many"])
    batch["many"][0, 0] = -1
    for number, one in enumerate(kept):
        assert (one.ravel()[1:] == one[1, 1]).all()
    return pd.DataFrame({"double": [len({one[1, 1] for one in kept})]})
"""
    options = {"postprocess": None, "mini_batch_size": "1 row"}
    result = score(tmp_path, table(40), script, **options)
    assert sorted(doubles(result)) == list(range(1, 41))


@pytest.mark.processes
@pytest.mark.parametrize("preprocess", ["decode", None])
def test_what_the_script_lets_go_is_free(preprocess: str | None, tmp_path: Path) -> None:
    """At once, and not with the next garbage: what is decoded may be large, and page-locked."""
    script = """
import gc, weakref
import numpy as np
import pandas as pd
seen, contexts = [], []

def init():
    gc.disable()

def decode(rows):
    return pd.DataFrame({"n": rows["n"]})

def run(rows, context):
    alive = sum(one() is not None for one in seen)
    seen.append(weakref.ref(rows))
    contexts.append(context)
    return pd.DataFrame({"double": [alive]})
"""
    options = {"preprocess": preprocess, "postprocess": None, "preprocess_processes": None}
    result = score(tmp_path, table(20), script, mini_batch_size="1 row", **options)
    assert doubles(result) == [0] * 20


@pytest.mark.processes
@pytest.mark.parametrize("on_error", mostly_long(["isolate", "null"], suite=["null"]))
def test_rows_that_fail_in_any_stage_are_found(on_error: str, tmp_path: Path) -> None:
    """A search calls the functions one after the other, after `init_preprocess`, too."""
    script = SCRIPT.replace('print("init_preprocess in", os.getpid())', "global known; known = 1")
    script = script.replace("def init_preprocess", "async def init_preprocess").replace(
        '    misbehave(rows["decode"])', '    known; misbehave(rows["decode"])'
    )
    script = script.replace("if 1_000_000 in", "if 44 * 2 in")
    data = table(60, {3: "raises", 17: "dies"}, run={31: "raises", 58: "dies"})
    result = score(tmp_path, data, script, on_error=on_error, run_max_try=1)
    assert result.items == (60, 55, 5)
    assert list(result.failed_rows["n"]) == [3, 17, 31, 44, 58]
    rows = result.to_pandas()["double"]
    bad = {3, 17, 31, 44, 58}
    assert rows.dropna().tolist() == [2 * n for n in range(60) if n not in bad]
    assert rows.isna().sum() == (5 if on_error == "null" else 0)


@pytest.mark.processes
def test_rows_that_a_stage_names_fail_alone(tmp_path: Path) -> None:
    """In whichever stage the script names them."""
    script = """
def decode(rows, context):
    if 3 in list(rows["n"]):
        context.fail([3], "cut short")
    return rows[["n"]]

def run(rows, context):
    if 15 in list(rows["n"]):
        context.fail([5], "no text in it")
    return rows[~rows["n"].isin([3, 15])]
"""
    result = score(tmp_path, table(30), script, postprocess=None)
    assert result.items == (30, 28, 2)
    named = result.failed_rows
    assert list(named["_error"]) == ["cut short", "no text in it"]
    assert list(named["n"]) == [3, 15]


LATE = """
import sys, time
from types import SimpleNamespace
import numpy as np
import pandas as pd

broken = False

class OnDevice:
    def __init__(self, numbers):
        self.numbers = numbers

    def __reduce__(self):
        global broken
        time.sleep(0.1)
        broken = broken or 31 in self.numbers
        if broken:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return list, (self.numbers,)

def init():
    def empty(size, **_):
        return SimpleNamespace(numpy=lambda: np.empty(size, "u1"))

    cuda = SimpleNamespace(is_initialized=lambda: True)
    sys.modules["torch"] = SimpleNamespace(cuda=cuda, Tensor=object, uint8="u1", empty=empty)

def init_preprocess():
    pass

def decode(rows):
    return list(rows["n"])

def run(numbers):
    return OnDevice(numbers)

def rows(numbers):
    return pd.DataFrame({"double": list(numbers)})
"""


@pytest.mark.processes
def test_what_a_device_computes_late_is_a_part_of_run(tmp_path: Path) -> None:
    """Its errors, too: a bad row costs its process, and no other row.

    What a device has made leaves it also where one process calls all functions.
    """
    result = score(tmp_path, table(100), LATE, on_error="isolate", run_max_try=1)
    assert list(result.failed_rows["n"]) == [31]
    assert doubles(result) == [n for n in range(100) if n != 31]
    attempts = pd.read_csv(JobFolder(tmp_path / "job").attempts)
    done = attempts[attempts["Status"] == "RUN_DONE"]
    assert (done["Run Method Seconds"] >= 0.1).all()
    assert (done["Elapsed Seconds"] >= 0.1).all()


TOO_MANY = """
def decode(rows):
    raise_for(rows, "decode")
    return rows[["n"]]

def raise_for(rows, stage):
    if stage == "WHERE" and len(rows) > 4:
        raise MemoryError("too many")

def run(rows):
    raise_for(rows, "run")
    return rows

def rows(rows):
    raise_for(rows, "rows")
    return rows.rename(columns={"n": "double"})
"""


@pytest.mark.processes
@pytest.mark.parametrize("where", mostly_long(["decode", "run", "rows"], suite=["decode"]))
def test_what_runs_out_of_memory_in_any_stage_runs_in_halves(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is charged, and the order is that of the input."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    script = TOO_MANY.replace("WHERE", where)
    result = score(tmp_path, table(50), script, independent_rows=True, run_max_try=1)
    assert doubles(result) == list(range(50))
    assert result.mini_batches.failed == 0


def test_a_summary_counts_what_postprocess_returns(tmp_path: Path) -> None:
    """Its rows are dropped."""
    data = table(50, {31: "raises"})
    options = {"output_action": "summary_only", "allowed_failed_count": 1, "run_max_try": 1}
    result = score(tmp_path, data, preprocess_processes=None, **options)
    assert result.items == (50, 40, 10)


@pytest.mark.processes
def test_a_deadline_leaves_whole_mini_batches_for_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of a mini-batch on its way between the stages is charged or kept."""
    monkeypatch.setattr(lease_sizes, "MARGIN", 1e9)  # an hour is near then
    with pytest.raises(daskprs.errors.ParallelRunInterrupted) as caught:
        score(tmp_path, table(200), deadline="1h")
    done = caught.value.result.mini_batches
    assert done.succeeded < 20
    assert done.failed == 0
    assert doubles(score(tmp_path, table(200), resume=True)) == [2 * n for n in range(200)]
