"""A job of the service that does not run daskprs: quick, and does as its input says.

The input is a file with words: ``wait PATH`` until that is there, ``write NAME TEXT`` into the
output folder, ``link NAME TARGET`` there, ``strange`` for a file with a name that is no UTF-8,
``say TEXT``, ``exit CODE``, ``run PATH`` of a Python file.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path

data, output = Path(sys.argv[1]), Path(sys.argv[2])
output.mkdir(parents=True, exist_ok=True)
lines = data.read_text().splitlines() if data.is_file() else []
for line in lines:
    word, *rest = line.split(" ")
    match word:
        case "wait":
            while not Path(rest[0]).exists():
                time.sleep(0.01)
        case "write":
            output.joinpath(rest[0]).write_text(" ".join(rest[1:]))
        case "strange":
            Path(os.fsdecode(os.fsencode(output) + b"/\xff.txt")).touch()
        case "link":
            output.joinpath(rest[0]).symlink_to(rest[1])
        case "say":
            print(" ".join(rest), flush=True)
        case "run":
            runpy.run_path(rest[0])
        case "exit":
            sys.exit(int(rest[0]))
output.joinpath("done.txt").write_text(str(data))
