"""The decisions of a job in plain Python, without Dask, disk, clock and processes."""
