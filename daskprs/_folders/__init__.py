"""The folders of jobs and pipelines: the only modules that spell their paths."""
