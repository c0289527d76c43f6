"""What a job is and what becomes of it, in plain Python: no Dask, disk, clock or process."""
