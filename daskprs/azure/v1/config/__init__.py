"""`ParallelRunConfig`, compute targets, environments and pipeline parameters of SDK v1."""
