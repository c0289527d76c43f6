"""Advice on the options of a job, from what was measured: figures in, sentences out.

Silence is the rule. A sentence needs a machine that is idle, a script that works, work for more
processes, and an option that the user has not set.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from daskprs.errors import Option

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

AFTER_S = 10.0
"""Seconds after which a job is advised; a shorter one is not worth the reading."""
MEASURED_S = 4.0
"""Shortest time, with all processes at work, of which figures say something."""
IDLE_GPU = 0.4
"""A GPU is idle if it works for less than this share of the time."""
BUSY_GPU = 0.8
"""The share of the time for which a GPU is to work with the number of processes that is advised."""
LEAST_LOAD = 0.02
ON_CPU = 0.5
"""Share of `run` on the CPU from which on more processes help a GPU. A script below it waits, for
a network, say, and perhaps on purpose."""
ON_CORE = 0.7
"""The same for cores."""
OF_MEMORY = 0.8
"""Share of the free memory that more processes may take."""
FOR_EACH = 2
"""Number of mini-batches that each process is to have at least."""
IMPORT_S, IMPORT_SHARE = 1.0, 0.03
"""Seconds, and share of the job, from which on an import is long."""
OF_STAGES = {"preprocess", "postprocess"}
"""Options by which `run` shares its processor time, and the count of processes, with other
functions: what they have used tells nothing of `run` alone."""
OF_IMPORTS = ("preload", "start_method", "python")
"""Options by which the user has decided how processes start."""
SHARES = (2, 4, 8, 16, 32, 64)
"""Numbers of processes on a GPU: their shares are short numbers."""


class GpuFigures(NamedTuple):
    """The figures of one GPU that the processes of the job may use."""

    number: int
    load: float
    """Share of the time for which it has worked."""
    used_bytes: int
    total_bytes: int


class Figures(NamedTuple):
    """The figures of one node while its processes worked."""

    measured_s: float
    cores: int
    """Cores that the processes of the job may use."""
    idle_cores: float
    """Cores of these that nothing has used, the mean."""
    used_cores: float
    """Cores that the processes of the job have used, with their sub-processes, the mean."""
    processes: int
    on_gpu: int
    """Number of the processes that have opened a GPU."""
    process_bytes: int
    """Memory of the largest process."""
    available_bytes: int
    run_s: float
    cpu_s: float
    """Seconds of the processor in `run`."""
    gpus: tuple[GpuFigures, ...] = ()

    @property
    def on_cpu(self) -> float:
        """Share of `run` on the CPU."""
        return min(1.0, self.cpu_s / self.run_s) if self.run_s else 0.0


class Advice(NamedTuple):
    """One sentence of advice."""

    kind: str
    """What it is about: a job gets one sentence of each kind."""
    text: str
    """The figures and the next step, with options as `errors.Option` marks them."""


def advice_on(figures: Figures, given: Collection[str], mini_batches: int) -> Advice | None:
    """Return the advice on one node, if there is any.

    `given` has the names of the options that the user has set, and `mini_batches` the number of
    those of the job, as far as it is known.
    """
    if figures.measured_s < MEASURED_S or not figures.processes:
        return None
    if figures.gpus:
        return _on_gpus(figures, given, mini_batches) if figures.on_gpu else None
    return None if figures.on_gpu else _on_cores(figures, given, mini_batches)


def advice_on_imports(
    imports_s: Sequence[float], packages: Collection[str], given: Collection[str], elapsed_s: float
) -> Advice | None:
    """Return the advice on imports that took long in each of several processes, if there is any.

    `packages` are large installed ones that were imported.
    """
    mean_s = sum(imports_s) / max(1, len(imports_s))
    if len(imports_s) == 1 or not packages or not {*OF_IMPORTS}.isdisjoint(given):
        return None
    if mean_s < max(IMPORT_S, IMPORT_SHARE * elapsed_s):
        return None
    return Advice(
        "imports",
        f"The import of the script took {mean_s:.1f} s in each of {len(imports_s)} processes: try "
        f"{Option('preload', [*packages])}.",
    )


def _on_gpus(figures: Figures, given: Collection[str], mini_batches: int) -> Advice | None:
    gpus = figures.gpus
    is_idle = max(one.load for one in gpus) < IDLE_GPU and figures.on_cpu >= ON_CPU
    ways: list[str] = []
    if figures.on_gpu < len(gpus):
        fact = f"{figures.on_gpu} of {len(gpus)} GPUs was used"
        if figures.on_gpu > 1:
            fact = fact.replace("was", "were")
        if not _is_set(given) and mini_batches >= FOR_EACH * len(gpus):
            ways.append(f"set {Option('process_count_per_node', len(gpus))}")
    elif is_idle and not OF_STAGES & {*given}:
        load = sum(one.load for one in gpus) / len(gpus)
        names = f"GPU {gpus[0].number} was" if len(gpus) == 1 else f"{len(gpus)} GPUs were"
        fact = (
            f"{names} busy {100 * load:.0f} % of the time; {100 * figures.on_cpu:.0f} % of run() "
            "was on the CPU"
        )
        may_move = figures.idle_cores >= 1 and mini_batches >= 2 * FOR_EACH
        if may_move and "python" not in given:
            ways.append(f"move what needs no GPU into a function for {Option('preprocess')}")
        each = 0 if _is_set(given) else _on_each_gpu(figures, load, mini_batches)
        if each:
            processes = Option("process_count_per_node", each * len(gpus))
            ways.append(f"try {processes} with {Option('gpus_per_process', 1 / each)}")
    return Advice("gpu", f"{fact}: {', or '.join(ways)}.") if ways else None


def _on_each_gpu(figures: Figures, load: float, mini_batches: int) -> int:
    """Return how many processes are to share a GPU; 0 unless those are twice as many as now."""
    count, now = len(figures.gpus), figures.on_gpu / len(figures.gpus)
    largest = max(one.used_bytes for one in figures.gpus) / now
    room = min(one.total_bytes for one in figures.gpus)
    most = min(
        BUSY_GPU * now / max(load, LEAST_LOAD),
        min(figures.cores, figures.on_gpu + ceil(figures.idle_cores)) / count,
        room * OF_MEMORY / max(1.0, largest),
        now + _more_in_memory(figures) / count,
        mini_batches / FOR_EACH / count,
    )
    return max((share for share in SHARES if 2 * now <= share <= most), default=0)


def _on_cores(figures: Figures, given: Collection[str], mini_batches: int) -> Advice | None:
    cores, now = figures.cores, figures.processes
    # A process with threads of its own, or with sub-processes, uses what it needs.
    works_alone = 0.5 * now <= figures.used_cores <= 1.5 * now
    if _is_set(given) or OF_STAGES & {*given} or figures.on_cpu < ON_CORE or not works_alone:
        return None
    if figures.idle_cores < cores / 2:  # others use them: a second job, say
        return None
    more = min(figures.idle_cores, _more_in_memory(figures))
    processes = int(min(cores, now + more, mini_batches / FOR_EACH))
    if processes < 2 * now:
        return None
    used = max(1, round(figures.used_cores))
    return Advice(
        "cores",
        f"{used} of {cores} cores {'was' if used == 1 else 'were'} used: the node has "
        f"{now} {'process' if now == 1 else 'processes'}, as many as its Dask workers have "
        f"threads. Try {Option('process_count_per_node', processes)}.",
    )


def _is_set(given: Collection[str]) -> bool:
    """Return whether the user has decided how many processes there are."""
    return "process_count_per_node" in given or "gpus_per_process" in given


def _more_in_memory(figures: Figures) -> float:
    """Return for how many more processes the node has memory."""
    return figures.available_bytes * OF_MEMORY / max(1, figures.process_bytes)
