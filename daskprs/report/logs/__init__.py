"""The log folder."""
