"""Rows that `run` returned, formatted in the agent."""
