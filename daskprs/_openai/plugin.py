"""The parts that OpenAI's batch files add to daskprs."""

from __future__ import annotations

from daskprs._plugins import Plugin

COMMAND = "daskprs._openai.command:run_batch_file"
PLUGIN = Plugin(commands={"run *.jsonl": COMMAND, "run --as": COMMAND})
