"""The parts that OpenAI's batch files add to daskprs."""

from __future__ import annotations

from daskprs._plugins import Plugin

PLUGIN = Plugin(commands={"run *.jsonl": "daskprs._openai.command:run_batch_file"})
