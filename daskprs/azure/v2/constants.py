"""Words that objects of SDK v2 take, by the SDK's own names."""

from __future__ import annotations

from daskprs.azure.v1.absent import not_built_in_v2


class AssetTypes:
    """Types of inputs, outputs, data and models."""

    URI_FILE = "uri_file"
    URI_FOLDER = "uri_folder"
    MLTABLE = "mltable"
    CUSTOM_MODEL = "custom_model"
    MLFLOW_MODEL = "mlflow_model"
    TRITON_MODEL = "triton_model"


class InputOutputModes:
    """Modes of inputs and outputs, without effect: data is read and written in place."""

    RO_MOUNT = "ro_mount"
    RW_MOUNT = "rw_mount"
    MOUNT = "mount"
    DOWNLOAD = "download"
    UPLOAD = "upload"
    DIRECT = "direct"
    EVAL_MOUNT = "eval_mount"
    EVAL_DOWNLOAD = "eval_download"


class BatchDeploymentOutputAction:
    """The names of what a deployment does with the rows that a scoring script returns."""

    APPEND_ROW = "append_row"
    SUMMARY_ONLY = "summary_only"


__getattr__ = not_built_in_v2
