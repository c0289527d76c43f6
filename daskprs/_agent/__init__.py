"""The process that runs a person's script, and those that start and watch it."""
