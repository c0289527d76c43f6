"""Stand-ins for a pipeline service: they explain what to do instead."""

from __future__ import annotations

from typing import Any, NoReturn

from daskprs.azure.v1.absent import Known
from daskprs.errors import UsageError


def refuse_publishing(*_: Any, **__: Any) -> NoReturn:
    """Refuse: no endpoint here can run the pipeline."""
    msg = (
        "publish: there is no Azure here, so no endpoint that would run the pipeline. Run it "
        "with other values by Experiment(ws, 'name').submit(pipeline, "
        "pipeline_parameters={…}), in a script that a scheduler calls."
    )
    raise UsageError(msg)


class PublishedPipeline(Known):
    """A pipeline that was published, an endpoint of pipelines, or a schedule: there is none."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse_publishing()

    @staticmethod
    def list(*_: Any, **__: Any) -> list[PublishedPipeline]:
        """Return an empty list: a workspace has none."""
        return []

    get = publish = create = refuse_publishing


PipelineEndpoint = Schedule = PublishedPipeline


class ScheduleRecurrence:
    """When a schedule would run."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept any arguments: `Schedule.create` says what to do instead."""


class InteractiveLoginAuthentication(Known):
    """A login without effect: nothing here needs authentication."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept any arguments."""

    get_authentication_header = refuse_publishing


ServicePrincipalAuthentication = MsiAuthentication = InteractiveLoginAuthentication
AzureCliAuthentication = InteractiveLoginAuthentication


def set_diagnostics_collection(*_: Any, **__: Any) -> None:
    """Accept a choice without effect: nothing is sent anywhere."""
