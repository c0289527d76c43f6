"""Dask collections as input: their graphs, their partitions on the workers, their readers."""
