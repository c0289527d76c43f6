"""Stand-ins for a pipeline service: they explain what to do instead."""

from __future__ import annotations

from typing import Any, NoReturn

from daskprs.errors import UsageError


def refuse_publishing() -> NoReturn:
    """Refuse to publish.

    Raises
    ------
    UsageError
        With what to write instead.

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
        """Return an empty list: a workspace has none."""
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
    """A login without effect: nothing here needs authentication."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take it."""

    def get_authentication_header(self) -> NoReturn:
        """Refuse: no service here needs the header."""
        refuse_publishing()


class ServicePrincipalAuthentication(InteractiveLoginAuthentication):
    """The same."""


class MsiAuthentication(InteractiveLoginAuthentication):
    """The same."""
