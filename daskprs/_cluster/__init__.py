"""Leases and partitions on Dask: the only place that imports distributed."""
