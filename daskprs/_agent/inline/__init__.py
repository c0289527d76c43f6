"""The agent in the process and thread of the caller: no fork, no kill, no timeout."""
