"""`DataReference`: a path on a datastore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs.azure.v1.data.dataset import FileDataset

if TYPE_CHECKING:
    from daskprs.azure.v1.data.datastore import Datastore


class DataReference:
    """A path on a datastore as an input of a step.

    Parameters
    ----------
    datastore : Datastore
        Which.
    data_reference_name : str, optional
        Its name.
    path_on_datastore : str, optional
        Its path there.
    **rest
        Without effect: it is read in place.

    """

    def __init__(
        self,
        datastore: Datastore,
        data_reference_name: str | None = None,
        path_on_datastore: str | None = None,
        **rest: Any,
    ) -> None:
        del rest
        self.name = data_reference_name or datastore.name
        self.dataset = FileDataset(
            [datastore.place(path_on_datastore or "")], {"input_type": "files"}
        )

    def as_mount(self) -> DataReference:
        """Return it: it is read, or written, in place."""
        return self

    as_download = as_upload = as_mount
