"""The option ``--deployment`` of the commands that go on with a job."""

from __future__ import annotations


def variables_of(file: str) -> dict[str, str]:
    """Set environment variables as in this file of the batch deployment that the job is of."""
    from daskprs.azure._deployments.batch_deployment import variables_in

    return variables_in(file)
