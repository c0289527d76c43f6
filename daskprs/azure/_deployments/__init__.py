"""Batch deployments: their files, their models and pipelines, and their invocations."""
