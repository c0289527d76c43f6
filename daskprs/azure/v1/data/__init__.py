"""Datasets, datastores and outputs of SDK v1."""
