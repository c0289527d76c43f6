"""The journal: what is committed, and what a resume recovers from it."""
