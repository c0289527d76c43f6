"""Spools: the files that agents append their rows to."""
