"""What every step and every component may say, whatever its type."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, field_validator

from daskprs.azure.pipelines.forms.port import SHOWN_IN_THE_STUDIO, Inputs, Outputs
from daskprs.yaml_files.form import Form, without_effect, works

HERE = "everything runs on this machine, or on the Dask cluster that is given"
ENVIRONMENT = "the Python that runs daskprs is used; what a script lacks is named before the start"


def _word(given: Any) -> Any:
    return str(given) if isinstance(given, bool) else given


Variables = dict[str, Annotated[str, BeforeValidator(_word)]]
"""Environment variables: switches are taken for the words that they are in an environment."""


class OldCode(Form):
    """An older form of ``code``: ``{local_path: …}``."""

    local_path: str = works()


Code = str | OldCode | None


class StepForm(Form):
    """A step of a pipeline, or a component."""

    type: str | None = works(None)
    inputs: Inputs | None = works(None)
    outputs: Outputs | None = works(None)
    component: Any = works(None, note="a file, a reference, or the component itself")
    environment_variables: Variables | None = works(None)
    name: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    version: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    display_name: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    description: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    experiment_name: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    tags: dict[str, Any] | None = without_effect(SHOWN_IN_THE_STUDIO)
    properties: dict[str, Any] | None = without_effect(SHOWN_IN_THE_STUDIO)
    schema_url: str | None = without_effect("the keys are checked all the same", alias="$schema")
    compute: Any = without_effect(HERE)
    identity: Any = without_effect("nobody has to be authorized here")
    services: Any = without_effect("nothing listens for it")
    queue_settings: Any = without_effect(HERE)
    is_deterministic: bool | None = works(None, note="default true: results are reused")


ALL = -1
"""As many nodes as there are."""


class ResourcesForm(Form):
    """``resources``."""

    instance_count: int | None = works(None, note="nodes for a parallel step; -1: all")
    instance_type: Any = without_effect(HERE)
    properties: Any = without_effect(HERE)
    docker_args: Any = without_effect(HERE)
    shm_size: str | None = without_effect(HERE)
    locations: Any = without_effect(HERE)
    max_instance_count: Any = without_effect(HERE)

    @field_validator("instance_count")
    @classmethod
    def _of_nodes(cls, given: int | None) -> int | None:
        if given is not None and given < 1 and given != ALL:
            msg = f"it has to be at least 1, or {ALL} for all nodes, not {given}"
            raise ValueError(msg)
        return given
