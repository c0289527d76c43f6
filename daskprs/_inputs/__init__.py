"""From data to mini-batches."""
