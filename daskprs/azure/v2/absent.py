"""Names of SDK v2 that are not here: importing one says what to do instead."""

from __future__ import annotations

_INSTEAD = {
    "write a command() that does the same": """
        spark Spark SparkComponent SparkJob automl AutoMLJob create_finetuning_job
        FineTuningTaskType data_transfer import_job
    """,
    "write a step for each trial, or a table of trials with parallel_run_function": """
        sweep Sweep SweepJob Choice Uniform LogUniform QUniform QLogUniform Normal LogNormal QNormal
        QLogNormal Randint BanditPolicy MedianStoppingPolicy TruncationSelectionPolicy Objective
    """,
    "daskprs serve offers batch deployments over HTTP": """
        OnlineEndpoint ManagedOnlineEndpoint ManagedOnlineDeployment KubernetesOnlineEndpoint
        KubernetesOnlineDeployment OnlineRequestSettings ProbeSettings ServerlessEndpoint
        MarketplaceSubscription
    """,
    "let a scheduler call a script": "JobSchedule RecurrenceTrigger RecurrencePattern CronTrigger",
    "a workspace is the folder of an MLClient": "Workspace Registry",
    "leave it out: nothing here needs authorization": """
        UserIdentityConfiguration ManagedIdentityConfiguration AmlTokenConfiguration
    """,
    "leave it out: a command runs once, on this machine": """
        PyTorchDistribution MpiDistribution TensorFlowDistribution RayDistribution
    """,
}
ABSENT = {name: instead for instead, names in _INSTEAD.items() for name in names.split()}


def refuse_absent(name: str) -> None:
    """Refuse a name of the SDK that is not here.

    Raises
    ------
    ImportError
        With what to do instead.

    """
    if name in ABSENT:
        msg = f"daskprs.azure.v2 has no {name}: {ABSENT[name]}."
        raise ImportError(msg)
