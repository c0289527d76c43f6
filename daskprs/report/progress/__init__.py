"""Progress on the terminal, in a notebook, and in plain lines."""
