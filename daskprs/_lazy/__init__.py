"""Lazy Dask collections of what an entry script makes of mini-batches."""
