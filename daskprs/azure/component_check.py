"""A component by itself, without a pipeline: what can be wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.azure.component import Source, declared
from daskprs.azure.pipeline_form import JobForm
from daskprs.azure.pipeline_ports import PipelinePorts
from daskprs.azure.pipeline_step import StepMaker
from daskprs.azure.pipelines.caller_inputs import Given
from daskprs.azure.values import Values
from daskprs.azure.wiring import Wiring

if TYPE_CHECKING:
    from daskprs.azure.assets import Assets
    from daskprs.pipeline_folder import PipelineFolder
    from daskprs.yaml_files.document import Document
    from daskprs.yaml_files.mistakes import Mistake


def check_component(
    document: Document, assets: Assets, folder: PipelineFolder
) -> tuple[list[Mistake], list[str]]:
    """Return all that is wrong with a component, warnings included, and keys without effect.

    It is looked at as the one step of a pipeline, whose inputs are not known yet.

    Parameters
    ----------
    document
        The file.
    assets
        Where assets are.
    folder
        Where the pipeline would run.

    """
    source = Source.of(document)
    step, mistakes = declared(Path(document.name).stem, document.content, source, assets)
    if step is None:
        return mistakes, []
    step = step.alone()
    values = Values(assets, folder)
    ports = PipelinePorts(JobForm(), source, values, folder, {}, {})
    wiring = Wiring(ports, values, {step.name: step}, folder, {}, assets)
    maker = StepMaker(wiring, Given(assets))
    maker.made(step)
    keys = [key.name for key in step.without_effect if key.name != "$schema"]
    return [*mistakes, *values.mistakes, *maker.mistakes], keys
