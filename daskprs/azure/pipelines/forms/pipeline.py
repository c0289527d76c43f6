"""The keys of a pipeline."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import ConfigDict

from daskprs.azure.pipelines.forms.port import SHOWN_IN_THE_STUDIO, Inputs, Outputs
from daskprs.azure.pipelines.forms.step import ENVIRONMENT, HERE
from daskprs.yaml_files.form import Form, ineffective, without_effect, works

RECORDED = "kept in the record of the run"


class SettingsForm(Form):
    """``settings``. A key that it does not know is a warning: published files have some."""

    model_config = ConfigDict(extra="allow")

    default_datastore: str | None = works(None, note="what `${{default_datastore}}` stands for")
    datastore: str | None = works(None, note="an older name of `default_datastore`")
    continue_on_step_failure: bool | None = works(None, note="default: false")
    default_compute: Any = without_effect(HERE)
    compute: Any = without_effect(HERE)
    environment: Any = without_effect(ENVIRONMENT)
    force_rerun: bool | None = works(None, note="run each step, whatever was done before")
    continue_run_on_step_failure: bool | None = works(None, note="as continue_on_step_failure")
    continue_run_on_failed_optional_input: bool | None = without_effect("no step goes on so")


def as_overrides(settings: SettingsForm | None) -> tuple[str, ...]:
    """Return what one file says of the settings in another, as ``--set`` does."""
    if settings is None:
        return ()
    idle = {key.name for key in ineffective(settings)}
    values = settings.model_dump(exclude_unset=True).items()
    return tuple(f"settings.{key}={json.dumps(value)}" for key, value in values if key not in idle)


class JobForm(Form):
    """What a pipeline job may say, whether its steps are in the file or in a component's."""

    type: Literal["pipeline"] | None = works(None)
    inputs: Inputs | None = works(None)
    outputs: Outputs | None = works(None)
    settings: SettingsForm | None = works(None)
    name: str | None = works(None, note=RECORDED)
    version: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    display_name: str | None = works(None, note=RECORDED)
    description: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    experiment_name: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    tags: dict[str, Any] | None = without_effect(SHOWN_IN_THE_STUDIO)
    properties: dict[str, Any] | None = without_effect(SHOWN_IN_THE_STUDIO)
    schema_url: str | None = without_effect("the keys are checked all the same", alias="$schema")
    compute: Any = without_effect(HERE)
    identity: Any = without_effect("nobody has to be authorized here")
    services: Any = without_effect("nothing listens for it")
    schedule: Any = without_effect("it runs when it is called")


class PipelineForm(JobForm):
    """A pipeline job with its steps."""

    jobs: dict[str, Any] = works(note="steps, by name")


class ComponentJobForm(JobForm):
    """A pipeline job that consists of a pipeline component."""

    component: str = works(note="the file of a pipeline component, or an asset")
