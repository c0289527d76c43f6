"""The entry script of MLflow models that come without one: `predict` once for each file.

The script has its own folder, because that folder is sent to the agents and comes first in their
import path. Another interpreter may run it: it is written for Python 3.8.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mlflow.pyfunc import load_model

__counts_inputs__ = True
"""Counts the files that succeed and not the rows of the result, since the input is files."""
MODE_OF_CHANNELS = {1: "L", 3: "RGB", 4: "RGBA"}


@lru_cache(maxsize=None)  # noqa: UP033 - `cache` came with Python 3.9
def model() -> Any:
    """Return the model: the one thing in the folder that the deployment names."""
    (folder,) = Path(os.environ["AZUREML_MODEL_DIR"]).iterdir()
    return load_model(str(folder))


def init() -> None:
    """Load the model."""
    model()


def run(mini_batch: list[str]) -> pd.DataFrame:
    """Return a row for each row of a table, and one for each image."""
    return pd.concat([scored(Path(file)) for file in mini_batch], ignore_index=True)


def scored(file: Path) -> pd.DataFrame:
    """Return the predictions for a file, with ``row`` (of tables) and ``file_name``."""
    suffix = file.suffix.lower()
    if suffix == ".csv":
        data: Any = table(file)
    elif suffix in {".parquet", ".pqt"}:
        frame = pd.read_parquet(file)
        data = frame.astype({name: kind for name, kind in types().items() if name in frame})
    else:
        data = image(file)
    found = predicted(model().predict(data))
    if isinstance(data, pd.DataFrame) and len(found) == len(data):
        found.insert(0, "row", range(len(found)))
    found["file_name"] = file.name
    return found


def predicted(result: Any) -> pd.DataFrame:
    """Return the result of `predict` as a frame; other types become its column ``prediction``."""
    if isinstance(result, pd.DataFrame):
        return result.reset_index(drop=True)
    if isinstance(result, dict):
        return pd.DataFrame({name: np.asarray(value).tolist() for name, value in result.items()})
    return pd.DataFrame({"prediction": np.asarray(result).tolist()})


# ---- what it is given ----


def types() -> dict[str, np.dtype[Any]]:
    """Return the columns of the model's signature with their types; none without columns."""
    schema = model().metadata.get_input_schema()
    if schema is None or schema.is_tensor_spec() or not schema.has_input_names():
        return {}
    kinds = map(np.dtype, schema.pandas_types())
    return dict(zip(schema.input_names(), kinds))  # noqa: B905 - `strict` came with Python 3.10


def table(file: Path) -> pd.DataFrame:
    """Return the rows of a CSV file, with the types of the signature."""
    kinds = types()
    dates = [name for name, kind in kinds.items() if kind.kind == "M"]
    given = {name: str if kind.kind == "O" else kind for name, kind in kinds.items()}
    frame = pd.read_csv(file, dtype={name: given[name] for name in given if name not in dates})
    return frame.assign(**{name: pd.to_datetime(frame[name]) for name in dates if name in frame})


def image(file: Path) -> np.ndarray[Any, Any]:
    """Return an image as height × width × channels, in the shape and type of the signature.

    Without one it is a batch of one image, of bytes.
    """
    from PIL import Image

    schema = model().metadata.get_input_schema()
    tensor = schema.inputs[0] if schema is not None and schema.is_tensor_spec() else None
    shape = (-1, -1, -1, -1) if tensor is None else tuple(tensor.shape)
    with Image.open(file) as opened:
        mode = MODE_OF_CHANNELS.get(shape[-1])
        pixels = np.asarray(opened.convert(mode) if mode else opened)
    if pixels.ndim == 2:  # noqa: PLR2004 - gray: it has no channels
        pixels = pixels[..., np.newaxis]
    pixels = pixels.astype(np.uint8 if tensor is None else tensor.type)
    if len(shape) == pixels.ndim + 1:
        pixels = pixels[np.newaxis]
    pairs = zip(shape, pixels.shape)  # noqa: B905 - as above
    fits = len(shape) == pixels.ndim and all(wanted in (-1, has) for wanted, has in pairs)
    return pixels if fits else pixels.reshape(shape)
