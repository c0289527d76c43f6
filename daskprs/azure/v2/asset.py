"""`Data` and `Model`: assets with a name, which a workspace finds again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from daskprs.azure._registry import reference_to
from daskprs.azure.v2.entity import Entity

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping


class _Asset(Entity):
    """A file or folder with a name and a version."""

    PLACES: ClassVar[frozenset[str]] = frozenset({"path"})
    KIND: ClassVar[str]

    name: str | None = None
    version: str | None = None
    description: str | None = None
    tags: Mapping[str, Any] | None = None
    properties: Mapping[str, Any] | None = None
    path: str | os.PathLike[str] | None = None
    type: str | None = None

    @property
    def id(self) -> str:
        """The reference to the asset, which inputs take as their path."""
        return reference_to(self.KIND, str(self.name), str(self.version))


class Data(_Asset):
    """A file or folder of data; registered, its path has a name."""

    KIND: ClassVar[str] = "data"

    type: str | None = "uri_folder"
    skip_validation: bool | None = None
    mltable_schema_url: str | None = None


class Model(_Asset):
    """A file or folder of a model; registered, it is copied into the workspace."""

    KIND: ClassVar[str] = "models"

    type: str | None = "custom_model"
    flavors: Mapping[str, Any] | None = None
    stage: str | None = None


def load_data(source: str | os.PathLike[str]) -> Data:
    """Read a data asset from its YAML file."""
    return Data.load(Path(source))


def load_model(source: str | os.PathLike[str]) -> Model:
    """Read a model from its YAML file."""
    return Model.load(Path(source))
