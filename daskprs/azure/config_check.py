"""The YAML file of a `ParallelRunConfig` by itself: what can be wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.agent.script.checked_script import check_script
from daskprs.azure.v1.config_yaml import FileForm
from daskprs.errors import UsageError
from daskprs.yaml_files.document import dotted
from daskprs.yaml_files.form import filled, ineffective
from daskprs.yaml_files.mistakes import Mistake

if TYPE_CHECKING:
    from daskprs.yaml_files.document import Document

ROOT = "parallel_run_config"


def check_config(document: Document) -> tuple[list[Mistake], list[str]]:
    """Return all that is wrong with a config, and keys without effect."""
    form, mistakes = filled(FileForm, document.content, document)
    config = document.content.get(ROOT)
    if isinstance(config, dict) and isinstance(config.get("entry_script"), str):
        told = _script_told(config["entry_script"], config.get("source_directory"), document)
        if told:
            loc = (ROOT, "entry_script")
            mistakes.append(Mistake(document.place(loc), dotted(loc), told))
    return mistakes, [key.name for key in ineffective(form)] if form is not None else []


def _script_told(script: str, folder: object, document: Document) -> str:
    """Return what is wrong with the script: it is looked for from here, and beside the file."""
    told = ""
    for base in (Path.cwd(), Path(document.name).absolute().parent):
        root = base / folder if isinstance(folder, str) else None
        try:
            check_script(script if root else base / script, root)
        except UsageError as error:
            told = told or str(error)
        else:
            return ""
    return told
