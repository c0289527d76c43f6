"""Jobs on a real card: `make test-gpu`. Everything here has a test with a stand-in elsewhere."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs

if TYPE_CHECKING:
    from daskprs import Result

pytestmark = [
    pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="this machine has no GPU"),
    pytest.mark.cold,  # a template of the tests would import torch for all of them
    pytest.mark.filterwarnings("default"),  # torch and its friends tell much
]

BREAKS_ITS_CONTEXT = """
    import torch

    def init():
        global known
        known = torch.arange(10, device="cuda")

    def run(rows):
        asked = torch.tensor(rows["n"].to_numpy() % 100, device="cuda")
        return rows.assign(square=(known[asked] ** 2).cpu().numpy())
"""
"""A row whose number ends with 10 or more fails a device-side assert: the context is lost."""


def written(folder: Path, script: str) -> Path:
    """Write a script into a folder of its own, and return its path."""
    path = folder / "code" / "script.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(script))
    return path


def score(folder: Path, script: str, numbers: list[int], **options: Any) -> Result:
    """Run a script over numbers, one for each mini-batch."""
    return daskprs.parallel_run(
        pd.DataFrame({"n": numbers}),
        written(folder, script),
        mini_batch_size="1 row",
        job_dir=folder / "job",
        allowed_failed_count=-1,
        **options,
    )


def test_only_agents_have_a_context_on_the_card(tmp_path: Path) -> None:
    """Driver, worker and zygote take no memory of the card. This test comes before others' own."""
    rows = score(
        tmp_path,
        """
        import os, pynvml, torch

        def run(rows):
            torch.zeros(1, device="cuda")
            pynvml.nvmlInit()
            card = pynvml.nvmlDeviceGetHandleByIndex(0)
            listed = [one.pid for one in pynvml.nvmlDeviceGetComputeRunningProcesses(card)]
            return rows.assign(pid=os.getpid(), listed=[listed] * len(rows))
        """,
        [0, 1],
    ).to_pandas()
    assert {*rows["listed"].explode()} == {*rows["pid"]}


@pytest.mark.parametrize("tries", [1, 3])
@pytest.mark.parametrize("processes", [1, 4])
def test_a_device_side_assert_fails_its_own_mini_batch_and_no_other(
    tmp_path: Path, processes: int, tries: int
) -> None:
    """The broken context fails all that follow in its process: they run again in a new one."""
    numbers = [1, 2, 99, 3, 4, 5, 6, 7, 8, 9, 101, 102, 98, 103, 104, 105]
    result = score(
        tmp_path,
        BREAKS_ITS_CONTEXT,
        numbers,
        run_max_try=tries,
        process_count_per_node=processes,
        gpus_per_process=1 / processes,
    )
    good = [n for n in numbers if n % 100 < 10]
    assert result.to_pandas()["n"].tolist() == good
    assert result.to_pandas()["square"].tolist() == [(n % 100) ** 2 for n in good]
    assert result.mini_batches.failed == 2


def test_a_script_that_always_asserts_ends_after_a_handful_of_starts(tmp_path: Path) -> None:
    """Each failure breaks its process, and none of them succeeds."""
    with pytest.raises(daskprs.ParallelRunFailed, match="device-side assert"):
        daskprs.parallel_run(
            pd.DataFrame({"n": [50] * 12}),
            written(tmp_path, BREAKS_ITS_CONTEXT),
            mini_batch_size="1 row",
            job_dir=tmp_path / "job",
            allowed_failed_count=4,
            run_max_try=1,
        )


def test_memory_that_runs_out_fails_that_attempt_and_keeps_the_process(tmp_path: Path) -> None:
    """Out of memory does not break a context."""
    result = score(
        tmp_path,
        """
        import os, torch

        def run(rows):
            held = torch.zeros(int(rows["n"].iloc[0]) << 30, dtype=torch.uint8, device="cuda")
            return rows.assign(gib=held.numel() >> 30, pid=os.getpid())
        """,
        [1, 4000, 1, 4000, 2],
        run_max_try=2,
    )
    rows = result.to_pandas()
    assert rows["gib"].tolist() == [1, 1, 2]
    assert len({*rows["pid"]}) == 1
    assert "out of memory" in (result.logs_dir / "job_error.txt").read_text()


def test_a_kernel_that_never_ends_is_killed_and_its_memory_is_back(tmp_path: Path) -> None:
    """The next process finds as much free memory as the first did."""
    result = score(
        tmp_path,
        """
        import torch

        def init():
            global held
            held = torch.zeros(16 << 30, dtype=torch.uint8, device="cuda")

        def run(rows):
            while rows["n"].iloc[0] == 3:
                held.add_(1)
                torch.cuda.synchronize()
            return rows.assign(free=torch.cuda.mem_get_info()[0] >> 30)
        """,
        list(range(6)),
        run_invocation_timeout=5,
        run_max_try=2,
        process_count_per_node=1,
    )
    rows = result.to_pandas()
    assert rows["n"].tolist() == [0, 1, 2, 4, 5]
    assert rows["free"].max() - rows["free"].min() <= 1


@pytest.mark.parametrize(
    ("options", "processes", "devices"),
    [
        ({}, 1, 1),
        ({"process_count_per_node": 4, "gpus_per_process": 0.25}, 4, 1),
        ({"process_count_per_node": 2, "gpus_per_process": 0}, 2, 0),
    ],
)
def test_each_process_sees_the_share_that_was_asked_for(
    tmp_path: Path, options: dict[str, Any], processes: int, devices: int
) -> None:
    """A process that has no GPU sees none."""
    result = score(
        tmp_path,
        """
        import os, time, torch

        def run(rows):
            time.sleep(0.5)
            return rows.assign(pid=os.getpid(), devices=torch.cuda.device_count())
        """,
        list(range(2 * processes)),
        **options,
    )
    rows = result.to_pandas()
    assert rows["devices"].unique().tolist() == [devices]
    assert 1 <= rows["pid"].nunique() <= processes


CALLER = """
import pandas as pd, torch
import daskprs

if __name__ == "__main__":
    model = torch.nn.Linear(1, 1).cuda()

    def predict(rows):
        asked = torch.tensor(rows[["n"]].to_numpy("float32"), device="cuda")
        with torch.inference_mode():
            return rows.assign(y=model(asked)[:, 0].cpu().numpy())

    frame = pd.DataFrame({"n": range(16)})
    rows = daskprs.parallel_run(frame, predict, mini_batch_size="8 rows").to_pandas()
    pd.testing.assert_frame_equal(rows, predict(frame))
"""


def test_a_function_may_use_a_model_that_its_caller_made_on_the_card(tmp_path: Path) -> None:
    """The context of the caller does not get into agents by a fork."""
    (tmp_path / "caller.py").write_text(CALLER)
    done = subprocess.run(
        [sys.executable, "caller.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_other_processes_have_decoded_arrives_in_page_locked_memory(tmp_path: Path) -> None:
    """Tensors of each type; the stage processes have no context, and see no card."""
    result = score(
        tmp_path,
        """
        import numpy as np, pandas as pd, torch

        def init_preprocess():
            assert not torch.cuda.is_available()

        def init():
            global weights
            weights = torch.ones(3, device="cuda")

        def decode(rows):
            n = int(rows["n"].iloc[0])
            kinds = torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool
            return {"tensors": [torch.full((2, 3), n).to(kind) for kind in kinds],
                    "empty": torch.empty((0, 3)), "array": np.full((1000, 3), n, "f4")}

        def run(batch):
            assert all(one.is_pinned() for one in batch["tensors"])
            array = torch.from_numpy(batch["array"])
            assert array.is_pinned()
            there = [one.to("cuda", non_blocking=True) for one in batch["tensors"]]
            return {"sums": [(one.float() @ weights).half() for one in there],
                    "array": array.to("cuda", non_blocking=True) @ weights,
                    "kinds": [str(one.dtype) for one in there], "empty": batch["empty"]}

        def rows(result):
            assert not torch.cuda.is_available()
            assert result["empty"].shape == (0, 3)
            return pd.DataFrame({"sum": [float(one[0]) for one in result["sums"]],
                                 "kind": result["kinds"], "last": float(result["array"][-1])})
        """,
        list(range(40)),
        preprocess="decode",
        postprocess="rows",
        preprocess_processes=4,
    )
    rows = result.to_pandas()
    assert result.status == "Completed"
    assert list(rows["last"][::5]) == [3.0 * n for n in range(40)]
    whole = rows[rows["kind"] != "torch.bool"]
    assert list(whole["sum"]) == [3.0 * n for n in range(40) for _ in range(4)]
