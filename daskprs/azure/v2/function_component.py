"""`command_component`: a function as a component, whose step calls it in a process of its own."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import shlex
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

from daskprs.azure._pipelines.values import SWITCHES, takes_path
from daskprs.azure.v2.component import LABELS, Component
from daskprs.azure.v2.entity import local_place, with_keys
from daskprs.azure.v2.ports import TYPES, Input, Output, signature_of
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


RETURNED = "output"
"""The output that has what a function returns."""
VALUE = "daskprs-value.json"
"""The file of a returned value, in the folder of this output."""


@with_keys(*LABELS, "environment", "code", "is_deterministic", "distribution", "resources")
def command_component(func: Callable[..., Any] | None = None, **keys: Any) -> Any:
    """Make a component of a function in a file.

    The annotations of its parameters declare inputs and outputs: ``Input(type=…)``,
    ``Output(type=…)``, ``int``, ``float``, ``bool`` or ``str``. A parameter without an annotation
    has the type of its default. The function is called with paths as text. What it returns is an
    output named ``output`` if its result is annotated as ``int``, ``float``, ``bool`` or ``str``:
    another function takes it as a value.

    Parameters
    ----------
    func
        The function, if the decorator is used without parentheses.
    name, version, display_name, description, tags
        Labels. Default: name and description of the function.
    environment
        The environment of the step, or its YAML file, relative to the file of the function. Its
        Python needs daskprs.
    code
        The folder that the step copies, relative to the file of the function. Default: its folder.
    is_deterministic
        Whether an earlier result of the same step is reused.
    distribution
        The function finds the variables of a world of one process.
    resources
        Without effect: the function is called once, on this machine.

    Returns
    -------
    FunctionComponent
        Called with inputs in the function of a pipeline, it makes a step.

    """

    def decorated(function: Callable[..., Any]) -> FunctionComponent:
        return FunctionComponent(function, **keys)

    return decorated if func is None else decorated(func)


class FunctionComponent(Component):
    """A function as a component; see `command_component`."""

    def __init__(self, function: Callable[..., Any], **keys: Any) -> None:
        own, told = function.__name__, keys.get("description") or inspect.getdoc(function)
        file = Path(inspect.unwrap(function).__code__.co_filename).absolute()
        if "__main__" in function.__module__ or function.__qualname__ != own:
            msg = (
                f"command_component: {own}() has to stand in a module of its own, which the "
                "notebook or script imports, outside of functions and classes: the step of the "
                "component imports the module, too."
            )
            raise OptionError(msg)
        _refuse_relative_imports(own, file)
        code = keys.get("code") or "."
        root = Path(local_place(code, file.parent))
        if not file.is_relative_to(root):
            msg = f"command_component: code={str(code)!r}: the file {file} does not lie in {root}."
            raise OptionError(msg)
        signature = signature_of(function)
        ports = {name: _declared(own, one) for name, one in signature.parameters.items()}
        outputs = {name: one.values() for name, one in ports.items() if isinstance(one, Output)}
        returned = _promised(own, signature.return_annotation)
        has_value = returned is not None and RETURNED not in ports
        if has_value:
            outputs[RETURNED] = {"type": "uri_folder"}
        environment = keys.get("environment")
        if isinstance(environment, str) and environment.endswith((".yml", ".yaml")):
            environment = local_place(environment, file.parent)
        call = shlex.join([file.relative_to(root).as_posix(), own])
        content = {
            "name": own,
            "display_name": own,
            **keys,
            "description": told,
            "inputs": {name: one for name, one in ports.items() if not isinstance(one, Output)},
            "outputs": outputs,
            "command": f"python -m {__name__} {call}",
            "code": local_place(root, root),
            "environment": environment,
        }
        super().__init__("command", {k: one for k, one in content.items() if one is not None})
        vars(self).update(
            _function=function,
            _returned=returned,
            value_output=RETURNED if has_value else None,
            takes_values=True,
            __doc__=told,
        )

    def calls(self, function: str) -> bool:
        """Say whether this is the component of a function, whatever the module calls it."""
        return bool(vars(self)["_function"].__name__ == function)

    def call(self, variables: Mapping[str, str]) -> None:
        """Call the function with the inputs and outputs that the step's variables have."""
        given: dict[str, Any] = {}
        for name, declared in self.inputs.items():
            text = variables[f"AZURE_ML_INPUT_{name}"]
            if text or not declared.get("optional"):
                given[name] = _value(text, declared)
        made = {name: variables[f"AZURE_ML_OUTPUT_{name}"] for name in self.outputs}
        folder = made.pop(self.value_output, "") if self.value_output else ""
        result = vars(self)["_function"](**given, **made)
        if not folder:
            return
        kind: type = vars(self)["_returned"]
        value = result.item() if getattr(result, "shape", None) == () else result  # of NumPy
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or (isinstance(value, bool) and kind is not bool):
            promised = f"the {kind.__name__} that it promises"
            msg = f"{vars(self)['_function'].__name__}() returned {result!r}, not {promised}"
            raise TypeError(msg)
        (Path(folder) / VALUE).write_text(json.dumps(kind(value)))


def _promised(function: str, hint: Any) -> type | None:
    """Return the type of the value that a function returns; None if it returns none."""
    if isinstance(hint, Output):
        hint = next((kind for kind, name in TYPES.items() if name == hint.type), hint)
    if isinstance(hint, type) and hint in TYPES:
        return hint
    is_group = isinstance(hint, type) and (issubclass(hint, tuple) or is_dataclass(hint))
    if is_group or get_origin(hint) is tuple or isinstance(hint, Output):
        msg = (
            f"command_component: {function}() returns {hint!r}, and the value of a step is one "
            "int, float, bool or str. Write each further one to an Output(type='uri_file')."
        )
        raise OptionError(msg)
    return None


def _refuse_relative_imports(function: str, file: Path) -> None:
    """Refuse a module that a step cannot import by itself."""
    for node in ast.walk(ast.parse(file.read_bytes(), str(file))):
        if isinstance(node, ast.ImportFrom) and node.level:
            msg = (
                f"command_component: {function}() stands in {file}, whose line {node.lineno} has a "
                "relative import. The step imports the file by itself, with its folder on the "
                "path: import modules beside it by their names alone."
            )
            raise OptionError(msg)


def _declared(function: str, one: inspect.Parameter) -> Output | dict[str, Any]:
    """Return the declaration of a parameter: an output, or the keys of an input."""
    hint = type(one.default) if one.annotation is one.empty else one.annotation
    if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
        hint = None
    if isinstance(hint, Output):
        return hint
    if isinstance(hint, Input):
        declared = {k: v for k, v in hint.values().items() if k not in ("path", "mode")}
    elif isinstance(hint, type) and hint in TYPES:
        declared = {"type": TYPES[hint]}
    else:
        msg = (
            f"command_component: {function}() does not say what its parameter {one.name!r} is. "
            f"Write {one.name}: Input(type=…), Output(type=…), int, float, bool or str."
        )
        raise OptionError(msg)
    if one.default is None:
        declared["optional"] = True
    elif one.default is not one.empty:
        declared["default"] = one.default
    return declared


def _value(text: str, declared: Mapping[str, Any]) -> Any:
    """Return the value of an input; a path for a value leads to what another function returned."""
    kind = declared.get("type")
    if takes_path(kind):
        return text
    file = os.path.join(text, VALUE)  # noqa: PTH118 - of any text
    if os.path.isabs(text) and os.path.isfile(file):  # noqa: PTH113, PTH117
        text = str(json.loads(Path(file).read_text()))
    match kind:
        case "integer":
            return int(text)
        case "number":
            return float(text)
        case "boolean":
            return SWITCHES[text.lower()]
    return text


def call_function(file: str, name: str) -> None:
    """Call a function of a file below the working directory as the step of its component."""
    path = Path(file).absolute()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        msg = f"{file} cannot be imported: its name has to end with .py"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    made = [one for one in vars(module).values() if isinstance(one, FunctionComponent)]
    next(one for one in made if one.calls(name)).call(os.environ)


if __name__ == "__main__":
    from daskprs.azure.v2 import function_component  # noqa: PLW0406 - its class is theirs

    function_component.call_function(*sys.argv[1:])
