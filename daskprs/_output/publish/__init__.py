"""The output file, put in order and published whole."""
