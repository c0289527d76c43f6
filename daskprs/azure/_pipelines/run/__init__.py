"""The run of a pipeline: its steps as processes, their reuse, its result."""
