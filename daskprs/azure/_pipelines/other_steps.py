"""Kinds of steps that are not run here, and what to write in place of each."""

from __future__ import annotations

from typing import Any

INSTEAD = {
    "automl": "train the model by a command of your own: "
    "`type: command`, `command: python train.py --data ${{inputs.data}}`",
    "import": "download the data, and give its place: `inputs: {data: {path: ./data}}`",
    "finetuning": "fine-tune the model by a command of your own: "
    "`type: command`, `command: python finetune.py --data ${{inputs.data}}`",
    "do_while": "repeat the work within one command: "
    "`type: command`, `command: while ./step.sh; do :; done`",
    "if_else": "decide within one command: "
    "`type: command`, `command: if ./check.sh; then ./one.sh; else ./other.sh; fi`",
    "condition": "decide within one command: "
    "`type: command`, `command: if ./check.sh; then ./one.sh; else ./other.sh; fi`",
    "parallel_for": "write one row for each item into a table, and call run() for each row: "
    "`daskprs run items.csv each.py --mini-batch-size 1`",
}
OTHERWISE = "write a command or a parallel step that does the same"


def instead_of(kind: str, content: dict[str, Any]) -> str:
    """Return the next step for a step of a kind that is not run here."""
    match kind:
        case "sweep":
            return _of_sweep(content)
        case "spark":
            return _of_spark(content)
        case "data_transfer":
            return _of_transfer(content)
    return INSTEAD.get(kind, OTHERWISE)


def _of_sweep(content: dict[str, Any]) -> str:
    trial, space = content.get("trial"), content.get("search_space")
    names = [*space][:3] if isinstance(space, dict) else []
    inputs = ", ".join(f"{name}: …" for name in names) or "rate: 0.1"
    part = f"component: {trial}" if isinstance(trial, str) else "command: …"
    table = "daskprs run trials.csv try_row.py --mini-batch-size 1"
    return (
        f"write a command step for each trial, `type: command`, `{part}`, `inputs: {{{inputs}}}`; "
        f"or a table with a row for each trial, which run() of a script tries: `{table}`"
    )


def _of_spark(content: dict[str, Any]) -> str:
    entry = content.get("entry")
    file = entry.get("file") if isinstance(entry, dict) else None
    args = " ".join(str(content.get("args") or "").split())
    line = " ".join(filter(None, ["python", str(file or "job.py"), args]))
    return f"pip install pyspark, and write a command: `type: command`, `command: {line}`"


def _of_transfer(content: dict[str, Any]) -> str:
    if content.get("task") in ("import_data", "export_data"):
        return INSTEAD["import"]
    source, target = (next(iter(content.get(key) or ()), "data") for key in ("inputs", "outputs"))
    line = f"cp -r ${{{{inputs.{source}}}}}/. ${{{{outputs.{target}}}}}"
    return f"copy the data by a command: `type: command`, `command: {line}`"
