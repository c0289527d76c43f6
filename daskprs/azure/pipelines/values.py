"""Values of inputs and outputs, created from the text in files, with their mistakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.azure.pipelines.bound import Binding, unknown, wrong_value
from daskprs.errors import UsageError
from daskprs.suggest import nearest
from daskprs.yaml_files.mistakes import nearest_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs.azure.assets import Assets
    from daskprs.azure.pipelines.component import Declared, YamlSource
    from daskprs.azure.pipelines.forms.port import InputForm
    from daskprs.folders.pipeline_folder import PipelineFolder
    from daskprs.yaml_files.mistakes import Mistake


class Values:
    """Creates values of inputs and outputs, and collects their mistakes.

    Parameters
    ----------
    assets
        The known local paths of assets and datastores.
    folder
        The folder of the run.

    """

    def __init__(self, assets: Assets, folder: PipelineFolder) -> None:
        self.mistakes: list[Mistake] = []
        self._assets = assets
        self._folder = folder

    def wrong(self, told: object, source: YamlSource, *way: str, of_key: bool = False) -> None:
        """Keep a mistake."""
        self.mistakes.append(source.mistake(str(told), *way, of_key=of_key))

    def path(
        self, text: str, kind: str | None, source: YamlSource, *way: str, made: bool = False
    ) -> Binding:
        """Return a path or reference as a value; a `made` one may lie in the run's folder."""
        root = self._folder.datastore if made else None
        try:
            place = self._assets.place(text, source.base, root)
        except UsageError as error:
            self.wrong(error, source, *way)
            return unknown(kind)
        return Binding(str(place.absolute()), kind, is_path=True)

    def existing(self, bound: Binding, source: YamlSource, *way: str) -> Binding:
        """Return a value; report a path that neither a step makes nor exists."""
        if bound.is_path and not bound.makers and not bound.is_unknown:
            if not bound.path.exists():
                told = f"there is no file or folder {bound.path}.{nearest(bound.path)}"
                self.wrong(told, source, *way)
            elif bound.type == "mltable" and not (bound.path / "MLTable").is_file():
                told = f"{bound.path} is no mltable: there is no file MLTable in it"
                self.wrong(told, source, *way)
        return bound

    def refuse_undeclared(
        self, step: Declared, ports: str, given: Iterable[str], known: list[str]
    ) -> None:
        """Refuse inputs or outputs that a step's component does not have."""
        for name in given:
            if name not in known:
                told = f"its component has no {ports[:-1]} {name!r}; {nearest_of(name, known)}"
                self.wrong(told, step.source, ports, name, of_key=True)

    def fitting(
        self, declared: InputForm | None, bound: Binding, source: YamlSource, *way: str
    ) -> Binding:
        """Return a value; report it if it breaks the rules of its declaration."""
        told = None if declared is None else wrong_value(declared, bound)
        if told is not None:
            self.wrong(told, source, *way)
        return bound
