"""The messages and the shared page between an agent and its supervisor."""
