"""Jobs on a card beside hand-written loops: ``python -m benchmarks.gpu``, or `make bench-gpu`."""
