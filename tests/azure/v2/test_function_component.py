"""`command_component`: functions as steps."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from daskprs.azure.v2 import Input, MLClient, Output, command, command_component
from daskprs.azure.v2.dsl import pipeline
from daskprs.errors import OptionError, YamlError

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTIONS = '''
from __future__ import annotations

from pathlib import Path

from daskprs.azure.v2 import Input, Output, command_component


@command_component()
def count(
    data: Input(type="uri_folder"),
    kept: Output(type="uri_folder"),
    least: int,
    word: str,
    share=0.5,
    *,
    is_loud: bool = True,
    more: Input(type="uri_file") = None,
) -> int:
    """Count the files."""
    from beside import shout

    given = [least, word, share, is_loud, more]
    (Path(kept) / "given.txt").write_text(shout(repr(given)))
    return len(list(Path(data).iterdir()))


@command_component(name="told", version="2", environment="./env.yaml", is_deterministic=False)
def tell(kept: Input(type="uri_folder"), number: int, told: Output(type="uri_file")):
    Path(told).write_text(f"{(Path(kept) / 'given.txt').read_text()} {number + 1}")
'''


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the module of the functions, in a folder beside that of a notebook."""
    for folder in ("src", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "src/functions_of_steps.py").write_text(FUNCTIONS)
    (tmp_path / "src/beside.py").write_text("def shout(text): return text.upper()\n")
    for name in "ab":
        (tmp_path / "data" / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "src")
    yield importlib.import_module("functions_of_steps")
    del sys.modules["functions_of_steps"]


def test_functions_are_steps(functions: Any) -> None:
    """Each is called with values of its types, and what one returns is a value for another."""

    @pipeline
    def counted(data: Any, least: int = 3) -> Any:
        first = functions.count(data=data, least=least, word="a b; $HOME")
        last = functions.tell(kept=first.outputs.kept, number=first.outputs.output)
        return {"told": last.outputs.told}

    made = counted(data=Input(path="data"))
    client = MLClient(root="store")
    job = client.jobs.create_or_update(made, job_dir="one")
    told = job.outputs["told"].read_text()
    assert told == "[3, 'A B; $HOME', 0.5, TRUE, NONE] 3"
    client.components.create_or_update(functions.tell)
    assert client.components.get("told", version="2").inputs == functions.tell.inputs


def test_annotations_declare_inputs_and_outputs(functions: Any) -> None:
    """With the types that files have for them; paths start from the file of the function."""
    assert functions.count.inputs == {
        "data": {"type": "uri_folder"},
        "least": {"type": "integer"},
        "word": {"type": "string"},
        "share": {"type": "number", "default": 0.5},
        "is_loud": {"type": "boolean", "default": True},
        "more": {"type": "uri_file", "optional": True},
    }
    assert functions.count.description == "Count the files."
    assert functions.count.outputs == {name: {"type": "uri_folder"} for name in ("kept", "output")}
    values = functions.tell.values()
    src = Path.cwd() / "src"
    assert (values["code"], values["environment"]) == (str(src), str(src / "env.yaml"))
    assert (values["name"], values["is_deterministic"]) == ("told", False)


def _unclear(what) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    del what


def test_what_a_step_could_not_call_is_refused(functions: Any) -> None:
    """Where it is written, with what to write."""
    with pytest.raises(OptionError, match=r"'what' is. Write what: Input\(type=…\), Output"):
        command_component(_unclear)

    def inner() -> None: ...

    with pytest.raises(OptionError, match=r"inner\(\) has to stand in a module of its own"):
        command_component(inner)
    with pytest.raises(OptionError, match="does not lie in"):
        command_component(code="data")(_unclear)
    cat = command(command="echo ${{inputs.n}}", inputs={"n": Input(type="integer")})

    @pipeline
    def counted(data: Any) -> None:
        first = functions.count(data=data, least=1, word="a")
        cat(n=first.outputs.output)

    with pytest.raises(OptionError, match="only a command_component takes what a function"):
        counted(data=Input(path="data")).values()

    @pipeline
    def inner(data: Any) -> Any:
        return {"v": functions.count(data=data, least=1, word="a").outputs.output}

    @pipeline
    def outer(data: Any) -> None:
        cat(n=inner(data=data).outputs.v)

    with pytest.raises(OptionError, match="only a command_component takes what a function"):
        outer(data=Input(path="data")).values()


def test_a_module_that_a_step_could_not_use_is_refused(functions: Any) -> None:
    """Before the start; a component may have another name than its function."""
    del functions
    Path("src/pack").mkdir()
    header = "from daskprs.azure.v2 import Output, command_component\n"
    Path("src/pack/near.py").write_text(header)
    Path("src/pack/far.py").write_text(
        f"{header}from .near import Output\ndef f(o: Output(type='uri_file')): ...\n"
        "g = command_component(f)\n"
    )
    with pytest.raises(OptionError, match=r"far.py, whose line 2 has a relative import"):
        importlib.import_module("pack.far")
    for hint in (tuple, tuple[int, int], NamedTuple("Two", [("a", int)]), Output(type="uri_file")):
        _promised.__annotations__["return"] = hint
        with pytest.raises(OptionError, match=r"is one int, float, bool or str"):
            command_component(_promised)
    _promised.__annotations__["return"] = Output(type="integer")
    assert command_component(_promised).value_output == "output"
    Path("src/renamed_function.py").write_text(
        f"{header}import beside\ndef f(o: Output(type='uri_file')):\n    open(o, 'w')\n"
        "renamed = command_component(f)\n"
    )
    module = importlib.import_module("renamed_function")
    client = MLClient(root="store")
    job = pipeline(lambda: {"made": module.renamed().outputs.o}, name="p")()
    made = client.jobs.create_or_update(job).outputs
    assert [*made] == ["made"]
    assert made["made"].is_file()
    file = Path("src/renamed_function.py")
    file.write_text(file.read_text().replace("import beside", "import absent_module"))
    with pytest.raises(YamlError, match=r"renamed_function.py imports what .*absent_module"):
        client.jobs.create_or_update(job)
    del sys.modules["renamed_function"]


def _promised(share: float) -> int:
    return share  # type: ignore[return-value]


def test_a_result_is_of_the_type_that_is_promised(tmp_path: Path) -> None:
    """Nothing is converted: 2.7 is no int, and the text False no bool."""
    made = command_component(_promised)
    variables = {"AZURE_ML_INPUT_share": "1", "AZURE_ML_OUTPUT_output": str(tmp_path)}
    right = [(int, 2), (int, np.int64(2)), (float, 2), (float, np.float32(2)), (bool, np.True_)]
    wrong = [(int, 2.7), (int, True), (float, "2"), (float, False), (bool, "False"), (str, 2)]
    wrong += [(str, None), (int, np.array([2]))]
    for kind, value in (*right, (str, "2")):
        vars(made).update(_returned=kind, _function=lambda value=value, **_: value)
        made.call(variables)
        (file,) = tmp_path.iterdir()
        found = json.loads(file.read_text())
        assert (type(found), found) == (kind, kind(value))
    for kind, value in wrong:
        vars(made).update(_returned=kind, _function=lambda value=value, **_: value)
        with pytest.raises(TypeError, match=rf"\(\) returned .*, not the {kind.__name__}"):
            made.call(variables)
