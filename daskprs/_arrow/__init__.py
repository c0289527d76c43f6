"""From Arrow to pandas and back, for inputs and for results."""
