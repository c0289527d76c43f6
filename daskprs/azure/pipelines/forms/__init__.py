"""The keys of pipeline files, step by step, and what becomes of each."""
