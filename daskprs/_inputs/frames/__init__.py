"""Frames in memory, and streams."""
