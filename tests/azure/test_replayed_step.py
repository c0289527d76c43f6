"""``daskprs replay`` of a step of a pipeline: its folder is that of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner

from daskprs._cli import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PIPELINE = """
type: pipeline
inputs:
  data: {type: uri_folder, path: ./in, mode: ro_mount}
jobs:
  score:
    type: parallel
    mini_batch_size: "1"
    mini_batch_error_threshold: 0
    retry_settings: {max_retries: 0}
    input_data: ${{inputs.data}}
    inputs:
      data: ${{parent.inputs.data}}
    outputs:
      out: {type: uri_folder}
    task:
      type: run_function
      code: src
      entry_script: score.py
      append_row_to: ${{outputs.out}}
      program_arguments: --limit 3
      environment: any
"""
SCRIPT = """
import sys

def run(mini_batch, any_name):
    if mini_batch[0].endswith("b"):
        raise ValueError(f"{any_name.minibatch_index} of {sys.argv[-1]}")
    return mini_batch
"""


def test_a_step_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its arguments and its forms; the way on is that of the pipeline."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.yml").write_text(PIPELINE)
    for folder in ("in", "src"):
        (tmp_path / folder).mkdir()
    for name in "abc":
        (tmp_path / "in" / name).write_text(name)
    (tmp_path / "src" / "score.py").write_text(SCRIPT)
    runner = CliRunner()
    run = runner.invoke(main, ["run", "pipeline.yml", "--job-dir", "joint", "--quiet"])
    assert run.exit_code == 42, run.output
    step = tmp_path / "joint" / "score"
    assert f"daskprs report {step} --text" in run.output
    done = runner.invoke(main, ["replay", str(step)])
    assert "ValueError: 1 of 3\ndaskprs: the same error as in the job" in done.stderr, done.output
    (tmp_path / "mended.py").write_text(SCRIPT.replace('"b"', '"z"'))
    fine = runner.invoke(main, ["replay", str(step), "--script", "mended.py"])
    assert fine.exit_code == 0, fine.output
    assert "to go on: run the pipeline again with --resume" in fine.stderr
    joint = runner.invoke(main, ["replay", "joint"])
    assert joint.exit_code == 2
    assert str(step) in joint.stderr
