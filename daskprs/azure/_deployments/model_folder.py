"""The model of a deployment: its place, its kind, and the folder that contains only it."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._folders.until_refused import until_refused
from daskprs.azure._missing_modules import lacking, named, way_out
from daskprs.errors import JobFolderError, ScriptError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._folders.job_folder import JobFolder
    from daskprs.azure._assets import NamedEnvironment

MODEL_DIR = "AZUREML_MODEL_DIR"
"""The environment variable with the folder that contains the model."""
FOLDER = "model"
"""The folder in that of a job that contains the model, and nothing else."""
OF_MLFLOW = "MLmodel"
DRIVER = Path(__file__).parents[1] / "_mlflow_driver" / "mlflow_score.py"
"""The entry script for MLflow models without a scoring script."""
TABLES = (".csv", ".parquet", ".pqt")
IMAGES = (".png", ".jpg", ".jpeg", ".tiff", ".bmp", ".gif")
SHOWN = 5
PACKAGE_OF = {"pytorch": "torch", "statsmodels": "statsmodels", "prophet": "prophet"} | {
    name: name
    for name in ("sklearn", "xgboost", "lightgbm", "catboost", "tensorflow", "keras", "onnx")
}
"""Packages that load a model, by the last part of MLflow's loader module."""


def is_mlflow(model: Path) -> bool:
    """Say whether a model is an MLflow model."""
    return (model / OF_MLFLOW).is_file()


def refuse_unservable(model: Path, files: Iterator[str], environment: NamedEnvironment) -> None:
    """Refuse an MLflow model without its packages here, and files that it cannot score."""
    suffixes = {Path(path).suffix.lower(): path for path in files}
    has_images = not suffixes.keys().isdisjoint(IMAGES)
    missing = missing_packages(model, environment.python, has_images=has_images)
    if missing:
        msg = (
            f"{model} is an MLflow model, and needs packages that {named(environment.python)} "
            f"does not have: {', '.join(missing)}. "
            f"{way_out(environment.python, environment.way)} For mlflow, "
            'mlflow-skinny will do: pip install "daskprs[mlflow]" brings it, and pillow. A '
            "scoring script, by code_configuration, needs neither."
        )
        raise ScriptError(msg)
    wrong = [path for suffix, path in suffixes.items() if suffix not in (*TABLES, *IMAGES)]
    if wrong:
        msg = (
            f"an MLflow model without a scoring script does not take files of these kinds: "
            f"{', '.join(sorted(wrong)[:SHOWN])}. It takes {', '.join((*TABLES, *IMAGES))}."
        )
        raise ScriptError(msg)


def missing_packages(
    model: Path, python: str | None = None, *, has_images: bool = False
) -> list[str]:
    """Return the packages that an MLflow model needs and an interpreter, or this one, lacks."""
    from daskprs.azure._yaml_files.document import Document

    content: Any = Document.read(model / OF_MLFLOW).content
    flavors = content.get("flavors") if isinstance(content, dict) else None
    function = flavors.get("python_function") if isinstance(flavors, dict) else None
    if not isinstance(function, dict):
        msg = (
            f"{model / OF_MLFLOW} has no flavor python_function: MLflow cannot serve such a model."
        )
        raise ScriptError(msg)
    needed = ["mlflow"]
    package, _, flavor = str(function.get("loader_module", "")).rpartition(".")
    if package == "mlflow" and flavor in PACKAGE_OF:
        needed.append(PACKAGE_OF[flavor])
    modules = {name: name for name in needed} | ({"pillow": "PIL"} if has_images else {})
    absent = lacking(modules.values(), python)
    return [name for name, module in modules.items() if module in absent]


@contextmanager
def contained(model: Path, job: JobFolder) -> Iterator[Path]:
    """Put a model into a folder of the job that contains nothing else, and return that folder.

    Its files are linked, not copied, where the file system allows it. One link to the whole model
    does not work: MLflow rejects its files as outside of the model's folder. When the job is
    refused before it begins, the folder is removed.
    """
    folder = job.path / FOLDER
    with until_refused(folder):
        try:
            if not folder.exists():
                folder.mkdir(parents=True)
                _link(model, folder / model.name)
        except OSError as error:
            msg = f"job_dir: {folder} cannot be made: {error}. Use another job_dir."
            raise JobFolderError(msg) from error
        yield folder


def _link(path: str | Path, place: str | Path) -> None:
    """Link a file, or each file of a folder, to another place."""
    if Path(path).is_dir():
        shutil.copytree(path, place, copy_function=_link, ignore_dangling_symlinks=True)
        return
    try:
        os.link(os.path.realpath(path), place)
    except OSError:  # another file system, or another user's file
        shutil.copy2(path, place)


def contents_told(model: Path, error: str) -> str:
    """Return a line on the folder of a model, for an error of a script that looks elsewhere.

    Such an error names that folder itself, or a path in it that does not exist.
    """
    folder = model.parent
    named = re.findall(rf"{re.escape(str(folder))}[^\s'\"]*", error)
    places = [Path(one.rstrip(".,:;)")) for one in named]
    if not any(one == folder or not one.exists() for one in places):
        return ""
    found = sorted(one.relative_to(folder) for one in (model, *model.rglob("*")) if one.is_file())
    shown = [f"{MODEL_DIR}/{one}" for one in found[:SHOWN]]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return (
        f"\n{MODEL_DIR} is a folder that contains the model, which is {model.name}: "
        f"{', '.join(shown)}{more}. To load the model, the script joins both: "
        f"os.path.join(os.environ[{MODEL_DIR!r}], {model.name!r})."
    )
