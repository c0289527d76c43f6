"""The forms of rows that an agent makes, and the spool that it writes them to."""

from __future__ import annotations

from typing import NamedTuple


class OutputSpec(NamedTuple):
    """The forms of rows that are kept."""

    text: bool
    """Format rows as lines for the append_row file."""
    typed: bool
    """Keep rows with their types for `to_pandas`."""
    header: bool = False
    separator: str = " "


class SpoolSpec(NamedTuple):
    """The spool to which an agent writes rows."""

    name: str
    """The spool's name in the journal, unique among the processes of the job."""
    text: str
    """The file of the text rows, …"""
    typed: str
    """… and that of the typed rows. Either is created with its first byte."""
    synced: bool = False
    """Whether rows must be on the disk before they are reported: a driver on another host sees
    nothing else."""
    from_bytes: int = 0
    """Size in bytes from which results go to the spool; smaller ones travel with their outcomes."""
