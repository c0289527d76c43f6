"""The folder of one entry script, which alone is sent to the agents."""
