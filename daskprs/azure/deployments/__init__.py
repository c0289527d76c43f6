"""Batch deployments: their files, what they run, and how they are invoked."""
