"""What the user reads: progress and logs, fed by events."""
