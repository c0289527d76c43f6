"""Leases on Dask: the only place that imports distributed."""
