"""What would need a service that runs pipelines: it says what to do instead."""

from __future__ import annotations

from typing import Any, NoReturn

from daskprs.errors import UsageError


def refuse_publishing() -> NoReturn:
    """Refuse to publish.

    Raises
    ------
    UsageError
        Saying what to write instead.

    """
    msg = (
        "publish: there is no Azure here, so no endpoint that would run the pipeline. Run it "
        "with other values by Experiment(ws, 'name').submit(pipeline, "
        "pipeline_parameters={…}), in a script that a scheduler calls."
    )
    raise UsageError(msg)


class PublishedPipeline:
    """A pipeline that was published: there is none."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse_publishing()

    @staticmethod
    def list(*_: Any, **__: Any) -> list[PublishedPipeline]:
        """Return those of a workspace: none."""
        return []

    @staticmethod
    def get(*_: Any, **__: Any) -> NoReturn:
        """Refuse, as `Pipeline.publish` does."""
        refuse_publishing()


class PipelineEndpoint(PublishedPipeline):
    """An endpoint of pipelines: there is none."""

    publish = PublishedPipeline.get


class Schedule(PublishedPipeline):
    """A schedule of a pipeline: there is none."""

    create = PublishedPipeline.get


class ScheduleRecurrence:
    """When a schedule would run."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take it: `Schedule.create` says what to do instead."""


class InteractiveLoginAuthentication:
    """Who is asking: nobody is asked here."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take it."""

    def get_authentication_header(self) -> NoReturn:
        """Refuse: there is no service that would look at it."""
        refuse_publishing()


class ServicePrincipalAuthentication(InteractiveLoginAuthentication):
    """The same."""


class MsiAuthentication(InteractiveLoginAuthentication):
    """The same."""
