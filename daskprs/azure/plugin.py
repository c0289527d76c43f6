"""The parts that Azure's surfaces add to daskprs."""

from __future__ import annotations

from daskprs._plugins import Plugin

PLUGIN = Plugin(
    commands={
        "environment": "daskprs.azure._commands.environment:environment",
        "invoke": "daskprs.azure._commands.invoke:invoke",
        "validate": "daskprs.azure._commands.validate:validate",
        "run *.yml": "daskprs.azure._commands.pipeline:run_pipeline_file",
        "run *.yaml": "daskprs.azure._commands.pipeline:run_pipeline_file",
    },
    variable_files={"deployment": "daskprs.azure._commands.resume:variables_of"},
    readers={"MLTable": "daskprs.azure._mltable.opening:open_mltable"},
    folders={"pipeline.json": "daskprs.azure._pipeline_status:PipelineOnDisk"},
    own_folders=("daskprs-results", "daskprs-workspace", "daskprs-v2"),
    in_job_folders=("model", "azureml-logs", "inputs.json", "outputs.json"),
    drivers={"step": "daskprs.azure._pipelines.parallel_step:drive_step"},
    stand_ins={
        "daskprs.azure._stand_ins": ("azure", "azureml", "azureml_user", "entry_script", "mltable"),
    },
    place_variables=r"AZUREML_(MODEL_DIR|RUN_ID|ROOT_RUN_ID)|AZURE_ML_(INPUT|OUTPUT)_\w*",
)
