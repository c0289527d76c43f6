"""Values in the commands of served pipelines: arguments, whatever they are made of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daskprs._cli import main
from daskprs.azure._expressions import ExpressionError
from daskprs.azure._pipelines.shell_arguments import served_command

if TYPE_CHECKING:
    from collections.abc import Iterator

X = "${{inputs.x}}"
SHOW = "import sys, json; print(json.dumps(sys.argv[1:]))"
COMMAND = f"""true && python show.py --one {X} "{X}" \\
    '{X}' 'a {X} b {X}' --two=c{X}"d{X}"; true > nothing.txt"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder with a program that shows its arguments, and nothing else."""
    folder = tmp_path_factory.mktemp("shell")
    folder.joinpath("show.py").write_text(SHOW)
    yield folder
    assert {path.name for path in folder.iterdir()} == {"show.py", "nothing.txt"}


@pytest.mark.attack
@settings(max_examples=20, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30))
@example("\"; touch planted; '$(touch planted)`touch planted`\n touch planted\n#*~\\")
def test_a_value_is_an_argument_wherever_it_stands(folder: Path, value: str) -> None:
    """The shell itself says so: outside of quotes, in either kind, and within a word."""
    line, variables = served_command(COMMAND, lambda _: value, lambda _: False)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", line],  # noqa: S607 - as the steps of a pipeline are run
        cwd=folder,
        env={"PATH": path, "PYTHONUTF8": "1", **variables},
        capture_output=True,
        check=True,
    )
    shown = ["--one", value, value, value, f"a {value} b {value}", f"--two=c{value}d{value}"]
    assert json.loads(done.stdout) == shown


@pytest.mark.attack
@pytest.mark.parametrize(
    "command",
    [
        *(f"{X} a", f"sh -c {X}", f"/bin/sh -c {X}", f"./bin/bash -c {X}", f"eval {X}"),
        *(f"python {X}", f"python -c {X}", f"python -u -c {X}", f"python -m timeit {X}"),
        *(f"pyth''on a.py {X}", f"\\python -c {X}", f"bash a.sh {X}", f"env python a.py {X}"),
        *(f"exec python a.py {X}", f"xargs {X}", f". {X}", f"ls; source {X}", f"A={X} python a.py"),
        *(f"python a.py `ls {X}`", f"python a.py $(ls {X})", f'python a.py "$(ls {X})"'),
        *(f'python a.py "`ls {X}`"', f'python a.py "$(({X}))"', f'python a.py "${{Y:-{X}}}"'),
        *(f"cat <<E\n{X}\nE", f"cat <<< {X}", f"cat <(ls {X})", f"[[ {X} ]]", f"(( {X} ))"),
        *(f"python a.py {X} | sh", f"python a.py {X} |& sh", f"python a.py {X} &"),
        *(f"python a.py > {X}", f"ls >| {X}", f"(python a.py {X})", f"{{ python a.py {X}; }}"),
        *(f"for x in {X}; do ls; done", f"if python a.py {X}; then ls; fi", f"! ls {X}"),
        *(f"python a.py \\{X}", f'python a.py "\\{X}"', f"python a.py ${X}", f"python a.py # {X}"),
        *(f"python a.py $'{X}'", f'python a.py $"{X}"', f"python a.py '{X}", f'python a.py "{X}'),
        *("python a.py $AZURE_ML_INPUT_x", "python a.py $DASKPRS_VALUE_0"),
        *('bash -c "ls $AZURE_ML_OUTPUT_x"', "ls ${AZUREML_OUTPUT_x}", f"echo hi >&1{X}"),
    ],
)
def test_a_command_that_might_read_a_value_as_shell_is_refused(command: str) -> None:
    """Whatever the value."""
    with pytest.raises(ExpressionError):
        served_command(command, lambda _: "a", lambda _: False)


@pytest.mark.attack
@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("outputs: {out: {type: uri_folder, path: './${{parent.inputs.x}}'}}", "the place of an"),
        ("inputs: {x: {type: uri_folder, path: '${{parent.inputs.x}}'}}", "is not a path"),
        ("inputs: {x: 'a ${{parent.inputs.x}}'}", "not within another text"),
        ("environment_variables: {PATH: '${{parent.inputs.x}}'}", "cannot be a setting"),
    ],
)
def test_a_callers_value_is_neither_a_place_nor_a_setting(
    tmp_path: Path, step: str, told: str
) -> None:
    """Before anything starts."""
    tmp_path.joinpath("pipeline.yml").write_text(
        "type: pipeline\ninputs: {x: {type: string}}\n"
        f"jobs:\n  one:\n    type: command\n    command: ls\n    {step}\n"
    )
    deployment = tmp_path / "deployment.yml"
    deployment.write_text("type: pipeline\njob_definition: pipeline.yml\n")
    words = ["invoke", str(deployment), "--input", "x=../../away", "--values-as-arguments"]
    done = CliRunner().invoke(main, [*words, "--job-dir", str(tmp_path / "job")])
    assert done.exit_code == 2
    assert told in done.output
    assert not tmp_path.joinpath("job").exists()
