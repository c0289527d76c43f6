"""Write what `run` returned to one file, in input order, whole or not at all."""
