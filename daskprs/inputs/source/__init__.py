"""What every input shares: the source, its options, its columns, sizes and types."""
