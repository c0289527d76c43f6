"""Listeners to the events of a job: progress, and the log folder."""
