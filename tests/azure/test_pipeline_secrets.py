"""Nothing that a pipeline writes has the value of an environment variable or of a secret."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from daskprs.azure import run_pipeline
from daskprs.errors import OptionError, PipelineFailed
from tests.acceptance import test_secrets
from tests.acceptance.test_secrets import FORMS, PLAIN, SECRET, holding, open_to_others

if TYPE_CHECKING:
    from pathlib import Path

home = test_secrets.home

PIPELINE = f"""
type: pipeline
inputs: {{data: {{type: mltable, path: ./table}}}}
outputs: {{rows: {{type: uri_file, path: ./rows.txt}}}}
jobs:
  say:
    type: command
    command: printf 'said %s' "$API_KEY"; printf -- "-$PLAIN" | head -c 4
    environment_variables: {{API_KEY: {SECRET!r}, PLAIN: {PLAIN}}}
  score:
    type: parallel
    inputs: {{data: "${{{{parent.inputs.data}}}}"}}
    outputs: {{rows: "${{{{parent.outputs.rows}}}}"}}
    input_data: ${{{{inputs.data}}}}
    mini_batch_size: 2b
    mini_batch_error_threshold: 0
    retry_settings: {{max_retries: 0}}
    max_concurrency_per_instance: 1
    environment_variables:
      API_KEY: {SECRET!r}
      PLAIN: {PLAIN}
    task: {{code: ./code, entry_script: score.py, append_row_to: "${{{{outputs.rows}}}}"}}
"""


def test_a_pipeline_of_a_file_writes_no_value(home: Path) -> None:
    """Its steps are processes of their own, commands and jobs."""
    (home / "table").mkdir()
    shutil.move(home / "n.csv", home / "table" / "n.csv")
    mltable = "paths: [{file: ./n.csv}]\ntransformations: [read_delimited: {}]\n"
    (home / "table" / "MLTable").write_text(mltable)
    (home / "pipeline.yml").write_text(PIPELINE.replace(repr(SECRET), yaml_text(SECRET)))
    lines: list[str] = []
    secrets = ["API_KEY"]
    given: dict[str, Any] = {"job_dir": home / "run", "show": lines.append, "secrets": secrets}
    with pytest.raises(PipelineFailed) as failed:
        run_pipeline(home / "pipeline.yml", **given)
    told = "\n".join([str(failed.value), *lines]).encode()
    assert not any(form in told for form in FORMS)
    assert "said ***-pla" in told.decode()
    assert holding(home) == []
    assert open_to_others(home / "run") == []
    (home / "mended").touch()
    run_pipeline(home / "pipeline.yml", resume=True, **given)
    assert (home / "rows.txt").read_text() == "row 0\nrow 1\nrow 2\n"
    assert holding(home) == []


TWO_STEPS = """
type: pipeline
jobs:
  one: {type: command, command: "echo key is $KEYX", environment_variables: {KEYX: "planted-key"}}
  two: {type: command, command: "echo no key"}
"""


def test_a_secret_of_one_step_is_no_mistake_of_the_others(home: Path) -> None:
    """One that no step has is refused, and so is one that would mask other words."""
    (home / "two.yml").write_text(TWO_STEPS)
    run = home / "two"
    run.mkdir()
    for name, told in (("NOSUCH", "no step has such a variable"), ("SHORT", "has 1 characters")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHORT", "a")
            with pytest.raises(OptionError, match=told):
                run_pipeline(home / "two.yml", job_dir=run, secrets=[name])
    lines: list[str] = []
    run_pipeline(home / "two.yml", job_dir=run, secrets=["KEYX"], show=lines.append)
    assert "[one] key is ***" in lines
    assert open_to_others(run) == []
    text = (home / "two.yml").read_text()
    (home / "two.yml").write_text(text.replace("planted-key", "rotated-key"))
    given: dict[str, Any] = {"job_dir": run, "resume": True, "show": lines.append}
    run_pipeline(home / "two.yml", secrets=["KEYX"], **given)
    assert lines[-2:] == ["one: kept, it is Completed", "two: kept, it is Completed"]
    run_pipeline(home / "two.yml", **given)
    assert "[one] key is rotated-key" in lines


def yaml_text(text: str) -> str:
    """Return a text as YAML quotes it."""
    return "'" + text.replace("'", "''") + "'"
