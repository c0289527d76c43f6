"""Frames in memory and Dask collections."""
