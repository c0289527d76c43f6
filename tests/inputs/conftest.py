"""What tests of input share."""

from __future__ import annotations

import io

from pyarrow import csv

# Arrow keeps a pipe for signals, from the first CSV on that a process reads.
csv.read_csv(io.BytesIO(b"a\n1\n"))
