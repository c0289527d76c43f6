"""Which forms of the rows an agent makes, and the spool that it puts them into."""

from __future__ import annotations

from typing import NamedTuple


class OutputSpec(NamedTuple):
    """Which forms of the rows are kept."""

    text: bool
    """Format rows as lines for the append_row file."""
    typed: bool
    """Keep rows with their types for `to_pandas`."""
    header: bool = False
    separator: str = " "


class SpoolSpec(NamedTuple):
    """Where an agent puts rows."""

    name: str
    """How the journal calls its spool: no other process of the job has one of that name."""
    text: str
    """The file of its lines, …"""
    typed: str
    """… and that of its rows with their types. Either is made with the first byte."""
    synced: bool = False
    """Whether rows have to be on the disk before they are told of: the driver is on another host,
    and sees nothing else."""
    from_bytes: int = 0
    """Results from this size on are put there; smaller ones travel with their outcomes."""
