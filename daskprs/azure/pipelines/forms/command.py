"""The keys of command steps and command components."""

from __future__ import annotations

from typing import Any

from daskprs.azure.pipelines.forms.step import ENVIRONMENT, Code, ResourcesForm, StepForm
from daskprs.yaml_files.form import Form, without_effect, works


class LimitsForm(Form):
    """``limits``."""

    timeout: float | None = works(None, note="seconds, then the command is killed", gt=0)


class CommandForm(StepForm):
    """A command step, or a command component."""

    command: str | None = works(None, note="run by bash, in a copy of the code")
    code: Code = works(None)
    limits: LimitsForm | None = works(None)
    environment: Any = without_effect(ENVIRONMENT)
    resources: ResourcesForm | None = without_effect("a command runs once, on this machine")
    distribution: Any = without_effect("a command runs once, on this machine")
    job_tier: Any = without_effect("there is no queue")
    priority: Any = without_effect("there is no queue")
