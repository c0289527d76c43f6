"""The folder of one entry script: it travels to the agents, and nothing else with it."""
