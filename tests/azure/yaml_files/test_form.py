"""Forms: what is wrong with a file is told in one go, each with its place."""

from __future__ import annotations

from pydantic import field_validator

from daskprs.azure._yaml_files.document import Document
from daskprs.azure._yaml_files.form import (
    Effect,
    Form,
    filled,
    ineffective,
    keys_of,
    refused,
    without_effect,
    works,
)


class Retry(Form):
    """What is nested."""

    timeout: int = works(60, gt=0)
    max_retries: int = works(2, ge=0)


class Job(Form):
    """What is nested in names of the user's."""

    code: str = works()
    retry: Retry | None = works(None)
    compute: str | None = without_effect("it runs here")
    schedule: str | None = refused("use cron")


class Whole(Form):
    """A file."""

    version: str | None = works(None)
    jobs: dict[str, Job] = works()

    @field_validator("version")
    @classmethod
    def _short(cls, version: str) -> str:
        if len(version) > 3:
            msg = f"{version!r} is too long"
            raise ValueError(msg)
        return version


TEXT = """\
version: 12345
jobs:
  a:
    cod: x
    retry: {timeout: 0, max_retry: 1}
    compute: [1]
  b: 7
"""

UNKNOWN = "there is no key 'max_retry'; did you mean 'max_retries'?"


def told(text: str) -> list[str]:
    """Return what is wrong with a file."""
    document = Document(text, "f.yml")
    return [str(one) for one in filled(Whole, document.content, document)[1]]


def test_every_mistake_is_told_with_its_place_and_the_nearest_key() -> None:
    """None hides another."""
    assert told(TEXT) == [
        "f.yml:1:10: version: '12345' is too long",
        "f.yml:4:5: jobs.a.code: it is missing",
        "f.yml:5:22: jobs.a.retry.timeout: input should be greater than 0, not 0",
        f"f.yml:5:25: jobs.a.retry.max_retry: {UNKNOWN}",
        "f.yml:6:14: jobs.a.compute: input should be a valid string, not [1]",
        "f.yml:4:5: jobs.a.cod: there is no key 'cod'; did you mean 'code'?",
        "f.yml:7:6: jobs.b: it has to be a mapping, not 7",
    ]


def test_what_was_put_into_the_content_has_the_place_of_what_it_is_in() -> None:
    """It stands nowhere in the file."""
    document = Document("version: 1\njobs:\n  a: {code: x}\n", "f.yml")
    document.content["jobs"]["a"]["retry"] = {"timeout": 0, "tries": 1}
    assert [str(one) for one in filled(Whole, document.content, document)[1]] == [
        "f.yml:3:6: jobs.a.retry.timeout: input should be greater than 0, not 0",
        "f.yml:3:6: jobs.a.retry.tries: there is no key 'tries'; did you mean 'max_retries'?",
    ]


def test_a_refused_key_says_what_to_write_instead() -> None:
    """It is known, and means something that is not done here."""
    assert told("jobs: {a: {code: x, schedule: daily}}") == [
        "f.yml:1:21: jobs.a.schedule: use cron"
    ]


def test_what_is_set_without_effect_can_be_told() -> None:
    """With the way to it."""
    document = Document("jobs: {a: {code: x, compute: gpu}}", "f.yml")
    form, mistakes = filled(Whole, document.content, document)
    assert form is not None
    assert not mistakes
    assert [(key.name, key.note) for key in ineffective(form)] == [("jobs.compute", "it runs here")]
    assert [key.effect for key in keys_of(Job)] == [
        *(Effect.WORKS, Effect.WORKS, Effect.NONE, Effect.REFUSED)
    ]
