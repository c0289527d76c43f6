"""OpenAI's batch files: requests to a server with OpenAI's API, and its answers."""
