"""One job of the benchmark, as a program of its own: ``python job.py ORDER``.

The order is JSON: the script, the input, the output, and the options. Prints what is counted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

import daskprs


def main(order: dict[str, Any]) -> None:
    """Run the job."""
    data: Any = order["input"]
    if isinstance(data, int):
        data = pd.DataFrame({"n": range(data)})
    elif Path(data).is_dir():
        data = sorted(map(str, Path(data).iterdir()))
    result = daskprs.parallel_run(
        data,
        order["script"],
        output=order["output"],
        overwrite=True,
        progress=False,
        **order["options"],
    )
    told = {
        "status": str(result.status),
        "failed_items": result.items.failed,
        "failed_mini_batches": result.mini_batches.failed,
        "advice": list(result.advice),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
