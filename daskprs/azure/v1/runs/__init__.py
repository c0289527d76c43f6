"""Steps, pipelines, experiments and runs of SDK v1."""
