"""The requirements of a published environment: its Python, and its packages in the words of pip."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet

from daskprs._suggest import nearest
from daskprs.azure._environments.conda_packages import PipPackage, pip_package, python_versions
from daskprs.azure._yaml_files.document import Document, Loc
from daskprs.azure._yaml_files.mistakes import refuse
from daskprs.errors import YamlError

if TYPE_CHECKING:
    from os import PathLike

YAML = (".yml", ".yaml")
ANOTHER_FILE = re.compile(r"(-r|--requirement|-c|--constraint)[\s=]+(?P<path>\S+)(?P<rest>.*)")
IN_AN_IMAGE = (
    "it has no conda_file: its packages are in an image, which is not made here. Write those that "
    "the scripts import into a conda file or a requirements.txt, and give that"
)
NO_ENVIRONMENT = (
    "this file has no environment: a conda file has dependencies, an environment of Azure has a "
    "conda_file. Any file that does not end in .yml or .yaml is one of pip's requirements"
)


@dataclass
class Specification:
    """An environment as a file describes it."""

    name: str
    base: Path
    """The folder that paths of pip start from."""
    python: str = ""
    """The requirement of Python, as the file has it; empty without one."""
    versions: SpecifierSet = field(default_factory=SpecifierSet)
    """The versions of Python that fit."""
    packages: list[PipPackage] = field(default_factory=list)
    """The packages of conda."""
    lines: list[str] = field(default_factory=list)
    """Lines for pip that the file has in pip's own words."""
    ignored: list[str] = field(default_factory=list)
    """Keys of the file that have no effect here, with the reasons."""


def read_specification(path: str | PathLike[str]) -> Specification:
    """Return what a conda file, an environment of Azure or a file of pip's requirements asks for.

    A YamlError has every mistake in it.
    """
    place = Path(path).absolute()
    if place.suffix.lower() not in YAML:
        if not place.is_file():
            msg = f"{path}: the file does not exist.{nearest(place)}"
            raise YamlError(msg)
        name = place.parent.name if place.stem == "requirements" else place.stem
        return Specification(name, place.parent, lines=[f"-r {shlex.quote(str(place))}"])
    document = Document.read(path)
    content = document.content if isinstance(document.content, dict) else {}
    if "build_dependencies" in content:
        return _of_mlflow(document, content, place)
    if "dependencies" in content:
        return _of_conda(document, content, (), place)
    if not content.keys() & {"conda_file", "image", "build"}:
        refuse([document.mistake((), NO_ENVIRONMENT)])
    return _of_azure(document, content, place)


def _of_azure(document: Document, content: dict[str, Any], place: Path) -> Specification:
    conda = content.get("conda_file")
    if isinstance(conda, dict):
        found = _of_conda(document, conda, ("conda_file",), place)
    elif conda:
        found = read_specification(place.parent / str(conda).removeprefix("file:"))
    else:
        raise YamlError(str(document.mistake((), IN_AN_IMAGE)))
    if content.get("name"):
        found.name = str(content["name"])
    if content.get("image"):
        found.ignored.append(f"image {content['image']}: containers are not used")
    return found


def _of_conda(document: Document, content: dict[str, Any], at: Loc, place: Path) -> Specification:
    name = content.get("name") or (place.parent.name if place.stem == "conda" else place.stem)
    found = Specification(str(name), place.parent)
    dependencies = content.get("dependencies") or []
    if not isinstance(dependencies, list):
        refuse([document.mistake((*at, "dependencies"), "it has to be a list")])
    mistakes = []
    for number, one in enumerate(dependencies):
        loc = (*at, "dependencies", number)
        if isinstance(one, str):
            _add(found, one)
        elif isinstance(one, dict) and [*one] == ["pip"] and isinstance(one["pip"], list):
            for at_line, line in enumerate(one["pip"]):
                if isinstance(line, str):
                    found.lines.append(_with_whole_path(line, place.parent))
                else:
                    mistakes.append(document.mistake((*loc, "pip", at_line), "it has to be text"))
        else:
            problem = "it has to be a package, or a list of pip's own packages below pip:"
            mistakes.append(document.mistake(loc, problem))
    refuse(mistakes)
    if channels := content.get("channels"):
        shown = ", ".join(map(str, channels)) if isinstance(channels, list) else channels
        found.ignored.append(f"channels {shown}: packages come from the index of pip")
    if content.get("variables"):
        found.ignored.append("variables: set them by environment_variables of the step")
    return found


def _of_mlflow(document: Document, content: dict[str, Any], place: Path) -> Specification:
    """Return the requirements in the ``python_env.yaml`` of an MLflow model, in pip's words."""
    as_conda: list[Any] = [{"pip": content.get("dependencies") or []}]
    if content.get("python"):
        as_conda.append(f"python={content['python']}")
    named = {"name": place.parent.name, "dependencies": as_conda}
    return _of_conda(document, named, (), place)


def _add(found: Specification, text: str) -> None:
    versions = python_versions(text)
    if text.strip() == "pip":
        return  # the new environment has one
    if versions is None:
        found.packages.append(pip_package(text))
    else:
        found.python, found.versions = text, versions


def _with_whole_path(line: str, base: Path) -> str:
    """Return a line of pip in which the path of another file of requirements is absolute."""
    match = ANOTHER_FILE.fullmatch(line.strip())
    if match is None or "://" in match["path"]:
        return line.strip()
    return f"{match[1]} {shlex.quote(str(base / match['path']))}{match['rest']}"
