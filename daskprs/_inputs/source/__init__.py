"""The common parts of all inputs: the source, its options, its columns, sizes and types."""
