"""Partition keys: the rows of each combination of values, brought together."""
