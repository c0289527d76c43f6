"""Run settings of steps: keys whose values may be inputs of the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs.azure.expressions import ExpressionError, filled_in, only_reference, parsed

if TYPE_CHECKING:
    from daskprs.azure.pipelines.component import YamlSource
    from daskprs.azure.pipelines.ports import PipelinePorts
    from daskprs.yaml_files.document import Loc
    from daskprs.yaml_files.mistakes import Mistake

LEFT_ALONE = {"inputs", "outputs", "component", "command", "input_data", "code", "append_row_to"}
TEXTS_OF_A_TASK = {"program_arguments", "args", "append_row_to", "code"}
"""Keys whose expressions are filled in later, or refer to the step itself."""


class RunSettings:
    """Fills in ``${{parent.inputs.x}}`` with its type; drops values that cannot be filled in.

    Parameters
    ----------
    ports
        The inputs of the pipeline.
    source
        The step.

    """

    def __init__(self, ports: PipelinePorts, source: YamlSource) -> None:
        self.mistakes: list[Mistake] = []
        self._ports = ports
        self._source = source

    def filled(self, content: Any, at: Loc = ()) -> Any:
        """Return the content of a step, or its value at a place, with expressions filled in."""
        if isinstance(content, dict):
            left = TEXTS_OF_A_TASK if at == ("task",) else () if at else LEFT_ALONE
            return {
                key: value if key in left else self.filled(value, (*at, key))
                for key, value in content.items()
            }
        if isinstance(content, list):
            return [self.filled(one, (*at, index)) for index, one in enumerate(content)]
        if not isinstance(content, str) or "${{" not in content:
            return content
        try:
            return self._value(content)
        except ExpressionError as error:
            self.mistakes.append(self._source.mistake(str(error), *at))
            return None

    def _value(self, text: str) -> Any:
        parts = parsed(text)
        one = only_reference(parts)
        known = self._ports.inputs
        if one is not None and one.scope == "inputs" and one.of_parent and one.name in known:
            bound = known[one.name]
            return None if bound.is_unknown else bound.value
        return filled_in(parts, self._ports.text)
