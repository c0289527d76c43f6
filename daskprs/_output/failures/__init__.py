"""The table of failed mini-batches, and what a resume carries over."""
