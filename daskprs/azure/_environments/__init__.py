"""Environments of published files: what they ask for, and virtual environments made of that."""
