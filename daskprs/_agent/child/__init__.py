"""The code in the agent process: its loop, the entry script, and sending results."""
