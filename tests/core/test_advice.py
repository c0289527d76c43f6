"""Advice on options: figures in, sentences out."""

from __future__ import annotations

from typing import Any

import pytest

from daskprs._core.advice import Figures, GpuFigures, advice_on, advice_on_imports
from daskprs.errors import worded

GB = 1 << 30
CORES = Figures(
    measured_s=5.0,
    cores=16,
    idle_cores=14.5,
    used_cores=1.02,
    processes=1,
    on_gpu=0,
    process_bytes=GB,
    available_bytes=100 * GB,
    run_s=9.0,
    cpu_s=8.9,
)
"""A cluster with one worker of one thread, on a machine with 16 cores."""
CARD = GpuFigures(0, 0.05, 4 * GB, 80 * GB)
GPU = CORES._replace(on_gpu=1, cpu_s=8.4, gpus=(CARD,))
"""A process that decodes pictures for a GPU."""
PLENTY = 10_000


def advised(figures: Figures, *given: str, mini_batches: int = PLENTY, **change: Any) -> str:
    """Return the advice as Python writes it; empty without any."""
    advice = advice_on(figures._replace(**change), given, mini_batches)
    return "" if advice is None else worded(advice.text)


def cards(count: int, **change: Any) -> tuple[GpuFigures, ...]:
    """Return some alike GPUs."""
    return tuple(CARD._replace(number=number, **change) for number in range(count))


def test_a_gpu_that_waits_for_its_process_gets_more_of_them() -> None:
    """The sentence has the figures that speak for it."""
    assert advised(GPU) == (
        "GPU 0 was busy 5 % of the time; 93 % of run() was on the CPU: move what needs "
        "no GPU into a function for preprocess, or try "
        "process_count_per_node=16 with gpus_per_process=0.0625."
    )


@pytest.mark.parametrize(
    ("change", "processes"),
    [
        ({"gpus": cards(1, load=0.39)}, 2),
        ({"gpus": cards(1, load=0.2)}, 4),
        ({"gpus": cards(1, load=0.0)}, 16),
        ({"gpus": cards(1, used_bytes=20 * GB)}, 2),
        ({"gpus": cards(1, used_bytes=40 * GB)}, 0),
        ({"process_bytes": 20 * GB}, 4),
        ({"cores": 4}, 4),
        ({"idle_cores": 3.0}, 4),  # another job uses the others
        ({"idle_cores": 0.5}, 2),
        ({"idle_cores": 0.0}, 0),
        ({"cores": 1}, 0),
        ({"mini_batches": 9}, 4),
        ({"mini_batches": 3}, 0),
        ({"gpus": cards(2), "on_gpu": 2}, 16),
        ({"gpus": cards(1), "on_gpu": 4, "processes": 4}, 16),
        ({"gpus": cards(1), "on_gpu": 16, "processes": 16}, 0),
    ],
    ids=str,
)
def test_so_many_processes_on_a_gpu_as_load_memory_and_work_allow(
    change: dict[str, Any], processes: int
) -> None:
    """And at least twice as many as there are."""
    text = advised(GPU, "python", **change)
    assert (f"process_count_per_node={processes} " in text) if processes else text == ""


def test_gpus_that_no_process_has_are_named() -> None:
    """A node has one process where nobody says more."""
    found = advised(GPU, gpus=cards(8, load=0.9))
    assert found == "1 of 8 GPUs was used: set process_count_per_node=8."
    assert advised(GPU, gpus=cards(8), mini_batches=9) == ""
    assert advised(GPU, "process_count_per_node", gpus=cards(8)) == ""


def test_idle_cores_are_named_where_processes_work() -> None:
    """The option gives a node more processes than its workers have threads."""
    assert advised(CORES) == (
        "1 of 16 cores was used: the node has 1 process, as many as its Dask workers have threads. "
        "Try process_count_per_node=15."
    )
    assert "4 of 16 cores were used" in advised(
        CORES, processes=4, used_cores=3.9, idle_cores=12, process_bytes=20 * GB
    )


@pytest.mark.parametrize(
    ("figures", "change"),
    [
        (CORES, {"measured_s": 3.0}),
        (CORES, {"processes": 0}),
        (CORES, {"processes": 16, "used_cores": 1.0}),
        (CORES, {"cpu_s": 3.0}),  # it sleeps, or waits for a network
        (CORES, {"run_s": 0.0}),
        (CORES, {"used_cores": 4.0}),  # it has threads, or sub-processes
        (CORES, {"used_cores": 0.1}),  # it waits for work
        (CORES, {"idle_cores": 6.0}),  # another job uses them
        (CORES, {"process_bytes": 90 * GB}),
        (CORES, {"mini_batches": 3}),
        (CORES, {"cores": 1, "idle_cores": 0.0}),
        (CORES, {"on_gpu": 1}),  # its GPUs are not known
        (GPU, {"on_gpu": 0}),
        (GPU, {"measured_s": 3.0}),
        (GPU, {"cpu_s": 2.0}),
        (GPU, {"gpus": cards(1, load=0.5)}),
        (GPU, {"on_gpu": 2, "gpus": (CARD, CARD._replace(load=0.7))}),
    ],
    ids=str,
)
def test_there_is_no_advice_that_may_be_wrong(figures: Figures, change: dict[str, Any]) -> None:
    """Nor any without a next step."""
    assert advised(figures, **change) == ""


@pytest.mark.parametrize("option", ["process_count_per_node", "gpus_per_process"])
@pytest.mark.parametrize("figures", [CORES, GPU])
def test_who_has_set_the_number_of_processes_is_not_advised(figures: Figures, option: str) -> None:
    """It is what was asked for."""
    assert advised(figures, option, "python") == ""
    assert advised(figures, "mini_batch_size") != ""


@pytest.mark.parametrize("figures", [CORES, GPU])
def test_a_job_with_stages_is_not_advised_by_the_time_of_all_of_them(figures: Figures) -> None:
    """It said that 97 % of run() was on the CPU, where run() waited for preprocess."""
    assert advised(figures, "preprocess") == advised(figures, "postprocess") == ""
    unused = "1 of 8 GPUs was used: set process_count_per_node=8."
    assert advised(GPU, "preprocess", gpus=cards(8)) == unused


def test_what_needs_no_gpu_can_move_to_idle_cores() -> None:
    """Also where the number of processes was set; a job of three mini-batches gains nothing."""
    moved = "was on the CPU: move what needs no GPU into a function for preprocess."
    assert advised(GPU, "process_count_per_node").endswith(moved)
    assert advised(GPU, "process_count_per_node", mini_batches=3) == ""
    assert advised(GPU, "process_count_per_node", idle_cores=0.5) == ""
    assert "preprocess" not in advised(GPU, "python")


def test_a_long_import_in_each_of_several_processes_is_to_be_done_once() -> None:
    """The packages are those that were imported and are large."""
    advice = advice_on_imports([4.0, 4.2], ["torch", "transformers"], (), 60.0)
    assert advice is not None
    assert worded(advice.text) == (
        "The import of the script took 4.1 s in each of 2 processes: try "
        "preload=['torch', 'transformers']."
    )


@pytest.mark.parametrize(
    ("imports_s", "packages", "given", "elapsed_s"),
    [
        ([], ["torch"], (), 10.0),
        ([4.0], ["torch"], (), 10.0),
        ([0.9, 0.9], ["torch"], (), 10.0),
        ([4.0, 4.0], [], (), 10.0),
        ([4.0, 4.0], ["torch"], ("preload",), 10.0),
        ([4.0, 4.0], ["torch"], ("start_method",), 10.0),
        ([4.0, 4.0], ["torch"], ("python",), 10.0),
        ([4.0, 4.0], ["torch"], (), 1000.0),
    ],
)
def test_an_import_that_need_not_be_done_once_is_not_named(
    imports_s: list[float], packages: list[str], given: tuple[str, ...], elapsed_s: float
) -> None:
    """One process imports as fast by itself, and a long job does not feel it."""
    assert advice_on_imports(imports_s, packages, given, elapsed_s) is None
