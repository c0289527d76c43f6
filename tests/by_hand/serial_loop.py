"""Run an entry script over its input in this process: the plain loop of `serial`.

``python serial_loop.py SCRIPT INPUT MINI_BATCH_SIZE KEYS OUTPUT ARGUMENT...``, in the folder of the
script, by any Python.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import types
from pathlib import Path


def table_or_files(place: Path):  # noqa: ANN201 - a frame or paths
    """Return the rows of an MLTable, or the paths of files."""
    description = place / "MLTable"
    if place.is_file() or not description.exists():
        return (
            [place] if place.is_file() else sorted(one for one in place.rglob("*") if one.is_file())
        )
    import yaml  # not every interpreter has them, and not every input needs them

    values = yaml.safe_load(description.read_text())
    files = []
    for one in values["paths"]:
        ((kind, name),) = one.items()
        if kind == "file":
            files.append(place / name)
        else:
            files += sorted(
                f for f in place.glob(name if kind == "pattern" else f"{name}/**/*") if f.is_file()
            )
    steps = {
        name: options for one in values.get("transformations", ()) for name, options in one.items()
    }
    if "read_delimited" not in steps:
        return files
    import pandas as pd

    frames = []
    for file in files:
        frame = pd.read_csv(file, sep=steps["read_delimited"].get("delimiter", ","))
        if found := steps.get("extract_columns_from_partition_format"):
            names = [word.strip("{}") for word in found["partition_format"].split("/")[:-1]]
            for name, word in zip(names, file.relative_to(place).parts):  # noqa: B905 - Python 3.8
                frame[name] = word
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def mini_batches(data, size: str, keys: list[str]):  # noqa: ANN001, ANN201
    """Yield mini-batches with their keys."""
    if isinstance(data, list):
        step = int(size) if size.isdigit() else len(data)
        for start in range(0, len(data), step):
            yield [str(path) for path in data[start : start + step]], {}
    elif keys:
        for values, rows in data.groupby(keys, sort=False):
            yield rows.reset_index(drop=True), dict(zip(keys, values))  # noqa: B905 - Python 3.8
    else:
        yield data, {}


def main() -> None:
    """Run the script, and write what it returns as Azure's append_row does."""
    script, place, size, keys, output, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path.cwd()))
    spec = importlib.util.spec_from_file_location(Path(script).stem, script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if hasattr(module, "init"):
        module.init()
    takes_context = len(inspect.signature(module.run).parameters) > 1
    keys = keys.split(",") if keys else []
    with Path(output).open("w") as rows:
        for batch, named in mini_batches(table_or_files(Path(place)), size, keys):
            context = types.SimpleNamespace(partition_key_value=named, minibatch_index=None)
            came = module.run(batch, context) if takes_context else module.run(batch)
            if hasattr(came, "to_csv"):
                came.to_csv(rows, sep=" ", header=False, index=False)
            else:
                rows.writelines(f"{row}\n" for row in came)


if __name__ == "__main__":
    main()
