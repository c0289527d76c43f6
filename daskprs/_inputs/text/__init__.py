"""Text files cut into byte ranges, and JSON lines."""
