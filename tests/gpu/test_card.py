"""Jobs on a real card: `make test-gpu`. Everything here has a test with a stand-in elsewhere."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from distributed import Client, Nanny, Scheduler, SpecCluster

import daskprs
from daskprs._agent.node.environment import device_uuids, visible_devices
from daskprs._system.nvml import gpus
from tests.support.pages import run_page

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


@pytest.mark.parametrize("preload", [None, ["torch"]])
def test_only_agents_have_a_context_on_the_card(tmp_path: Path, preload: list[str] | None) -> None:
    """Driver, worker and zygote take no memory of the card. This test comes before others' own."""
    result = score(
        tmp_path,
        """
        import os, sys

        once = "torch" in sys.modules
        import torch
        from daskprs._system.nvml import gpu_usage

        def run(rows):
            torch.zeros(1, device="cuda")
            listed = [pid for one in gpu_usage() for pid in one.processes]
            return rows.assign(pid=os.getpid(), once=once, listed=[listed] * len(rows))
        """,
        [0, 1],
        preload=preload,
    )
    rows = result.to_pandas()
    assert {*rows["listed"].explode()} == {*rows["pid"]}
    assert {*rows["once"]} == {preload is not None}
    log = (result.logs_dir / "sys" / "master_role.txt").read_text()
    assert "each process imports torch" not in log


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


def test_a_card_has_one_name_for_all_workers_of_a_host(tmp_path: Path) -> None:
    """NVML and CUDA agree on its UUID, and only one of two workers hands it out."""
    [name, *_] = visible_devices({}) or ()
    [uuid, *_] = device_uuids((name,), {})
    workers = {
        number: {
            "cls": Nanny,
            "options": {"nthreads": 1, "env": {"CUDA_VISIBLE_DEVICES": called}},
        }
        for number, called in enumerate((name, uuid))
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard_address": "127.0.0.1:0"}}
    with SpecCluster(workers, scheduler) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        rows = score(
            tmp_path,
            """
            import os, time, torch

            def run(rows):
                time.sleep(0.5)
                known = [
                    str(torch.cuda.get_device_properties(number).uuid)
                    for number in range(torch.cuda.device_count())
                ]
                return rows.assign(pid=os.getpid(), known=",".join(known))
            """,
            list(range(8)),
            process_count_per_node=2,
            gpus_per_process=1,
            client=client,
        ).to_pandas()
    known = {*rows["known"]} - {""}
    assert len(rows[rows["known"] != ""]["pid"].unique()) == 1
    if uuid.startswith("GPU-"):
        assert known == {uuid.removeprefix("GPU-")}


@pytest.mark.skipif(
    not any(one.instances for one in gpus()), reason="no card of this machine is divided"
)
def test_each_instance_of_a_divided_card_has_a_process(tmp_path: Path) -> None:
    """CUDA finds an instance by its UUID alone."""
    devices = visible_devices({}) or ()
    rows = score(
        tmp_path,
        """
        import os, time, torch

        def run(rows):
            time.sleep(0.5)
            torch.zeros(1, device="cuda")
            return rows.assign(seen=os.environ["CUDA_VISIBLE_DEVICES"])
        """,
        list(range(4 * len(devices))),
        process_count_per_node=len(devices),
    ).to_pandas()
    assert {*rows["seen"]} == {*devices}


def test_the_load_of_a_card_is_the_mean_of_the_last_seconds(tmp_path: Path) -> None:
    """The card works for three seconds, and then rests for three."""
    rows = score(
        tmp_path,
        """
        import time, torch
        from daskprs._system.nvml import gpu_usage

        def run(rows):
            x = torch.rand(4096, 4096, device="cuda")
            until = time.monotonic() + 3.5
            while time.monotonic() < until:
                x = (x @ x).clamp(0, 1)
                torch.cuda.synchronize()
            busy = max(gpu_usage(2.5), key=lambda one: one.percent or 0)
            time.sleep(3.5)
            idle = gpu_usage(2.5)[busy.number]
            return rows.assign(
                busy=busy.percent, idle=idle.percent, means=busy.is_mean and idle.is_mean
            )
        """,
        [0],
    ).to_pandas()
    assert rows["means"].all()
    assert rows["busy"].iloc[0] > 70
    assert rows["idle"].iloc[0] < 30


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_job_says_that_its_card_waits_for_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_idle: bool
) -> None:
    """A card that works most of the time needs no advice."""
    [name, *_] = visible_devices() or ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", name)
    result = score(
        tmp_path,
        """
        import time, torch

        def init():
            global x
            x = torch.rand(4096, 4096, device="cuda")

        def run(rows):
            until = time.monotonic() + (0.0 if IS_IDLE else 0.2)
            while time.monotonic() < until:
                (x @ x).sum().item()
            begun = time.process_time()
            while IS_IDLE and time.process_time() < begun + 0.2:
                pass
            return rows.assign(sum=float(x.sum()))
        """.replace("IS_IDLE", str(is_idle)),
        list(range(70)),
    )
    of_card = [text for text in result.advice if "GPU" in text]
    assert len(of_card) == int(is_idle)
    for text in of_card:
        assert " was busy " in text
        assert "gpus_per_process=" in text


def test_a_context_in_a_fork_is_explained(tmp_path: Path) -> None:
    """The line that made the first context is named, and how to start processes instead."""
    with pytest.raises(daskprs.ParallelRunFailed) as raised:
        daskprs.parallel_run(
            pd.DataFrame({"n": [1]}),
            written(
                tmp_path,
                """
                import multiprocessing, torch

                def init():
                    global known
                    known = torch.arange(10).cuda()

                def square(number):
                    return int(torch.tensor(number, device="cuda") ** 2)

                def run(rows):
                    with multiprocessing.get_context("fork").Pool(1) as pool:
                        return rows.assign(square=pool.map(square, rows["n"].tolist()))
                """,
            ),
            job_dir=tmp_path / "job",
            run_max_try=1,
        )
    assert "known = torch.arange(10).cuda()" in str(raised.value)
    assert 'start_method="spawn"' in str(raised.value)


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


LATE = """
    import pandas as pd
    import torch

    def init():
        global known
        known = torch.arange(10, device="cuda")

    def init_preprocess():
        pass

    def decode(rows):
        return rows["n"].to_numpy().copy()

    def run(numbers):
        asked = torch.from_numpy(numbers % 100).to("cuda", non_blocking=True)
        return {"n": numbers, "square": known[asked] ** 2}

    def rows(made):
        return pd.DataFrame({"n": made["n"], "square": made["square"].numpy()})
"""


def test_an_assert_is_one_of_run_if_postprocess_gets_tensors(tmp_path: Path) -> None:
    """It shows only when a tensor leaves the card; in a search, one process calls all functions."""
    numbers = [n % 10 for n in range(200)]
    numbers[31] = numbers[150] = 99
    result = daskprs.parallel_run(
        pd.DataFrame({"n": numbers}),
        written(tmp_path, LATE),
        mini_batch_size="20 rows",
        job_dir=tmp_path / "job",
        preprocess="decode",
        postprocess="rows",
        preprocess_processes=2,
        on_error="isolate",
        run_max_try=1,
    )
    assert list(result.failed_rows["_position"]) == [31, 150]
    assert list(result.to_pandas()["square"]) == [n**2 for n in numbers if n < 10]


def test_the_tutorial_runs_on_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the blocks that need one."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    page = Path(__file__).parents[2] / "docs" / "tutorials" / "gpus.md"
    for output in run_page(page, tmp_path, has_gpu=True):
        assert output.is_right, "\n".join([output.where, *output.came])
