"""Run published pipelines of Azure twice, by daskprs and by a plain loop, and compare the outputs.

``python -m tests.by_hand.serial [--root FOLDER] [--input NAME=VALUE] [--asset NAME=PATH]
[--environment NAME=VENV] FILE...``. The plain loop shares no code with daskprs: it runs each
command by ``bash`` and each entry script in one process, step by step. What it does not know, such
as most of MLTable, ends it: it is there to see that values are right, not to be complete.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from daskprs.azure import run_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOP = Path(__file__).with_name("serial_loop.py")
EXPRESSION = re.compile(r"\$\{\{\s*([\w.]+)\s*\}\}")
WHOLE = re.compile(r"\s*\$\{\{\s*([\w.]+)\s*\}\}\s*")
OPTIONAL = re.compile(r"\$\[\[(.*?)\]\]", re.DOTALL)
OWN = re.compile(
    r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b|\b\d\d:\d\d:\d\d(\.\d+)?\b"
)


class Plain:
    """A pipeline that runs step by step, each when something asks for its outputs."""

    def __init__(
        self,
        values: dict[str, Any],
        home: Path,
        place: Path,
        given: argparse.Namespace,
        inputs: dict[str, Any],
    ) -> None:
        self.values, self.home, self.place, self.given = values, home, place, given
        self.inputs = {
            **{name: self._literal(one) for name, one in (values.get("inputs") or {}).items()},
            **inputs,
        }
        self.outputs: dict[str, dict[str, Path]] = {}
        self.logs: dict[str, Path] = {}

    def run(self) -> None:
        """Run all steps."""
        for name in self.values["jobs"]:
            self._outputs_of(name)

    def place_of(self, name: str) -> Path:
        """Return the place of an output: ``step.port``, or ``outer.inner.port``."""
        step, _, port = name.rpartition(".")
        return self.outputs[step][port]

    def output(self, name: str) -> Path:
        """Return an output of the pipeline: that of the step that writes it."""
        for step, values in self.values["jobs"].items():
            for port, given in (values.get("outputs") or {}).items():
                target = given.get("path") if isinstance(given, dict) else given
                if isinstance(target, str) and f"parent.outputs.{name}" in target:
                    return self._outputs_of(step)[port]
        msg = f"no step writes {name}"
        raise KeyError(msg)

    def _literal(self, value: Any) -> Any:
        """Return the path or the value of an input, resolved; None without one."""
        if isinstance(value, dict):
            value = value.get("path", value.get("default"))
        if isinstance(value, str) and (found := WHOLE.fullmatch(value)):
            return self._named(found[1].split("."))
        if isinstance(value, str):
            value = EXPRESSION.sub(lambda found: str(self._named(found[1].split("."))), value)
            place = self._asset(value)
            beside = self.home / re.sub(r"^azureml:(?=\./)", "", value)
            return place or (beside.resolve() if value and beside.exists() else value)
        return value

    def _named(self, words: list[str]) -> Any:
        match words:
            case ["parent", "inputs", name]:
                return self.inputs[name]
            case ["parent", "jobs", step, "outputs", port]:
                return self._outputs_of(step)[port]
            case _:
                raise KeyError(".".join(words))

    def _asset(self, reference: str) -> Path | None:
        for name, place in self.given.asset:
            if reference == name or re.fullmatch(rf"azureml:{re.escape(name)}([:@].*)?", reference):
                return place
        return None

    def _outputs_of(self, step: str) -> dict[str, Path]:
        if step not in self.outputs:
            values, home = self._with_component(self.values["jobs"][step])
            inputs = {
                name: self._literal(one)
                for name, one in (self.values["jobs"][step].get("inputs") or {}).items()
            }
            place = self.place / step
            place.mkdir(parents=True)
            if "jobs" in values:
                inner = Plain(values, home, place, self.given, inputs)
                inner.run()
                self.logs |= {f"{step}.{name}": log for name, log in inner.logs.items()}
                for name, ports in inner.outputs.items():
                    self.outputs[f"{step}.{name}"] = ports
                self.outputs[step] = {
                    name: inner.output(name) for name in values.get("outputs") or {}
                }
            else:
                defaults = {
                    name: one["default"]
                    for name, one in (values.get("inputs") or {}).items()
                    if isinstance(one, dict) and "default" in one
                }
                self.outputs[step] = self._run(step, values, home, place, {**defaults, **inputs})
        return self.outputs[step]

    def _with_component(self, values: dict[str, Any]) -> tuple[dict[str, Any], Path]:
        component = values.get("component")
        if component is None:
            return values, self.home
        if isinstance(component, dict):
            whole, home = component, self.home
        else:
            file = self._asset(component) or self.home / component.removeprefix("file:")
            whole, home = yaml.safe_load(file.read_text()), file.parent.resolve()
        own = {key: values[key] for key in ("mini_batch_size", "partition_keys") if key in values}
        return {**whole, **own}, home

    def _run(
        self, step: str, values: dict[str, Any], home: Path, place: Path, inputs: dict[str, Any]
    ) -> dict[str, Path]:
        """Run a command or an entry script in a copy of its code."""
        outputs = {}
        task = values.get("task", values)
        for name, one in (values.get("outputs") or {}).items():
            outputs[name] = place / "out" / name
            is_file = self._type_of(one) == "uri_file"
            (outputs[name].parent if is_file else outputs[name]).mkdir(parents=True, exist_ok=True)
        work = place / "work"
        if task.get("code"):
            shutil.copytree(home / task["code"], work, dirs_exist_ok=True)
        for name in ("outputs", "logs"):
            (work / name).mkdir(parents=True, exist_ok=True)

        def filled(text: str) -> str:
            known = {"inputs": inputs, "outputs": outputs}

            def of(found: re.Match[str]) -> str:
                kind, name = found[1].split(".")
                return str(known[kind][name])

            def optional(found: re.Match[str]) -> str:
                names = [one.split(".") for one in EXPRESSION.findall(found[1])]
                there = all(known[kind].get(name) is not None for kind, name in names)
                return found[1] if there else ""

            return EXPRESSION.sub(of, OPTIONAL.sub(optional, text))

        python = self._python(step, task.get("environment") or values.get("environment"), home)
        env = {
            **{key: one for key, one in os.environ.items() if key != "PYTHONPATH"},
            **{k: str(v) for k, v in (values.get("environment_variables") or {}).items()},
            **{f"AZURE_ML_INPUT_{k}": str(v) for k, v in inputs.items()},
            **{f"AZURE_ML_OUTPUT_{k}": str(v) for k, v in outputs.items()},
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        }
        log = place / "log.txt"
        if "command" in values:
            self.logs[step] = log
            line = ["bash", "-c", filled(values["command"])]
        else:
            line = [str(python), str(LOOP), task["entry_script"]]
            line += [str(inputs[EXPRESSION.findall(values["input_data"])[0].split(".")[1]])]
            line += [str(values.get("mini_batch_size") or "")]
            line += [",".join(values.get("partition_keys") or ())]
            line += [filled(task.get("append_row_to") or "/dev/null")]
            line += filled(task.get("program_arguments") or "").split()
        with log.open("w") as text:
            subprocess.run(
                line,
                cwd=work,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=text,
                stderr=text,
                check=True,
            )
        if "artifacts" in outputs and not any(outputs["artifacts"].iterdir()):
            for name in ("outputs", "logs"):
                shutil.copytree(work / name, outputs["artifacts"] / name)
        return outputs

    def _type_of(self, output: Any) -> str | None:
        """Return the type of an output, which may be that of an output of the pipeline."""
        if isinstance(output, str):
            output = self.values["outputs"][EXPRESSION.findall(output)[0].split(".")[-1]]
        return (output or {}).get("type")

    def _python(self, step: str, environment: Any, home: Path) -> Path:
        text = str(environment)
        if isinstance(environment, dict) and "conda_file" in environment:
            text += (home / environment["conda_file"]).read_text()
        for name, venv in self.given.environment:
            if name == step or name in text:
                return venv / "bin" / "python"
        return Path(sys.executable)


def differing_files(ours: Path, theirs: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the names and the texts of files that differ in two folders; or of two files."""
    names = {"."}
    if theirs.is_dir():
        names = {str(one.relative_to(at)) for at in (ours, theirs) for one in at.rglob("*")}
    for name in sorted(names):
        one, other = (_text(at / name) for at in (ours, theirs))
        if one != other:
            yield name, one, other


def _text(path: Path) -> str:
    if path.is_dir():
        return "a folder"
    return path.read_text(errors="backslashreplace") if path.exists() else "not there"


def compared(file: Path, root: Path, given: argparse.Namespace) -> int:
    """Run a pipeline twice, print what each step's outputs are like; return how many differ."""
    place = Path(tempfile.mkdtemp(prefix="serial-", dir=given.keep))
    for name in ("ours", "theirs"):
        shutil.copytree(root, place / name, symlinks=True)
    inner = file.resolve().relative_to(root.resolve())
    result = run_pipeline(
        place / "ours" / inner,
        inputs=dict(given.input),
        assets={name: str(path) for name, path in given.asset},
        environments={name: str(path) for name, path in given.environment},
        job_dir=place / "job",
        show=lambda _: None,
    )
    values = yaml.safe_load(file.read_text())
    home = (place / "theirs" / inner).parent
    if "jobs" not in values:
        whole = home / values["component"]
        inputs = values.get("inputs") or {}
        values = yaml.safe_load(whole.read_text())
        values["inputs"] = {**(values.get("inputs") or {}), **inputs}
        home = whole.parent
    plain = Plain(values, home, place / "plain", given, dict(given.input))
    plain.run()
    places = {
        f"{name}.{port}": path
        for name, step in result.steps.items()
        for port, path in step.outputs.items()
    }
    ours = {**places, "case": place / "ours"}
    theirs = {**{name: plain.place_of(name) for name in places}, "case": place / "theirs"}
    for name, log in plain.logs.items():
        theirs[f"code of {name}"] = log.parent / "work"
        ours[f"code of {name}"] = result.steps[name].folder / "code"
    count = 0
    for name in places:
        pairs = [
            (which, _neutral(one, ours), _neutral(other, theirs))
            for which, one, other in differing_files(ours[name], theirs[name])
        ]
        found = [
            f"{which}: {_log_difference(*texts) or 'order'}"
            for which, *texts in pairs
            if texts[0] != texts[1]
        ]
        size = sum(one.is_file() for one in [theirs[name], *theirs[name].rglob("*")])
        print(f"  {name}: {size} files, {'; '.join(found) or 'equal'}")
        count += len(found)
    for name, log in plain.logs.items():
        one = _neutral(result.steps[name].log.read_text(), ours)
        print(
            f"  log of {name}: {_log_difference(one, _neutral(log.read_text(), theirs)) or 'equal'}"
        )
    print(f"  kept in {place}")
    return count


def _log_difference(ours: str, theirs: str) -> str:
    """Return the first line that differs."""
    one, other = ours.splitlines(), theirs.splitlines()
    differing = [f"{a!r} and {b!r}" for a, b in zip(one, other, strict=False) if a != b]
    if differing or len(one) == len(other):
        return differing[0] if differing else ""
    return f"{len(one)} and {len(other)} lines"


def _neutral(text: str, places: dict[str, Path]) -> str:
    """Return a text without what each run has of its own: times, ids, and paths of outputs."""
    for name, path in sorted(places.items(), key=lambda item: -len(str(item[1]))):
        text = text.replace(str(path), f"<{name}>")
    return OWN.sub("<own>", text)


def _pair(text: str) -> tuple[str, Path]:
    name, _, value = text.rpartition("=")
    return name, Path(value).absolute()


def options(words: list[str]) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path)
    parser.add_argument("--keep", type=Path, help="the folder for what the runs leave")
    parser.add_argument(
        "--input", type=lambda text: text.split("=", 1), action="append", default=[]
    )
    parser.add_argument("--asset", type=_pair, action="append", default=[])
    parser.add_argument("--environment", type=_pair, action="append", default=[])
    parser.add_argument("files", nargs="+", type=Path)
    return parser.parse_args(words)


def main() -> None:
    """Compare the files one after another."""
    given = options(sys.argv[1:])
    for file in given.files:
        print(file, flush=True)
        count = compared(file, given.root or file.parent, given)
        print(f"{file}: {f'{count} differences' if count else 'equal'}", flush=True)


if __name__ == "__main__":
    main()
