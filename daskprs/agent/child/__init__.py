"""What runs in the agent process: its loop, the person's script, what is sent back."""
