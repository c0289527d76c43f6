"""The tables of ``logs/perf``: their columns, and what stands in them."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from daskprs._core.events import AgentChanged, UsageMeasured
from daskprs._core.lease import AgentExited
from daskprs._core.usage import DeviceUsage, DiskUsage, NodeUsage, ProcessUsage, UsageSample
from daskprs._report.log_files import LogFiles
from daskprs._report.usage_logs import UsageLogs
from tests.support.job_events import HERE, STARTED

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs._core.events import Event
    from daskprs._folders.job_folder import JobFolder

MB = 1 << 20
SAMPLE = UsageSample(STARTED, "running", 7, 2, 10.0, 300 * MB, 5 * MB, MB, 900 * MB, 0)
LATER = SAMPLE._replace(taken=STARTED + 2, cpu_s=13.0, rss_bytes=400 * MB, group_bytes=600 * MB)
USAGE = NodeUsage(
    taken=STARTED,
    cpu_percent=12.34,
    total_bytes=1000 * MB,
    available_bytes=750 * MB,
    used_bytes=250 * MB,
    disk_reads=3,
    disk_writes=4,
    disk_read_bytes=5 * MB,
    disk_written_bytes=6 * MB,
    sent_bytes=7 * MB,
    received_bytes=8 * MB,
    tcp_connections=9,
    udp_connections=None,
    disks=(DiskUsage("/work, and so on", 200 * MB, 50 * MB, 150 * MB),),
    devices=(),
    agents=(ProcessUsage("process000", 41, SAMPLE, 200 * MB, None),),
    processes="PID\n41\n",
)
CONTRACT = (
    "Utc Time,Cpu Percent,Memory Total (MB),Memory Available (MB),Memory Used (MB),"
    "Memory Used Percent,Disk Io Read Count,Disk Io Write Count,Disk Io Read (MB),"
    "Disk Io Write (MB),Network Sent (MB),Network Recv (MB),# of TCP Connections,"
    "# of UDP Connections"
)
NOW = "2027-01-15T08:00:00.250+00:00"


def write(folder: JobFolder, *events: Event) -> None:
    """Write the tables as one driver does."""
    files = LogFiles()
    logs = UsageLogs(folder, files)
    for event in events:
        logs.tell(event)
    files.close()


def content(path: Path) -> list[str]:
    """Return the lines of a table."""
    return path.read_text().splitlines()


def test_the_table_of_a_node_is_that_of_the_contract(folder: JobFolder) -> None:
    """An unknown value is empty."""
    write(folder, UsageMeasured(3, USAGE, of_node=True))
    assert folder.node_usage(3) == folder.logs / "perf" / "3" / "node_resource_usage.csv"
    assert content(folder.node_usage(3)) == [
        CONTRACT,
        f"{NOW},12.3,1000.0,750.0,250.0,25.0,3,4,5.0,6.0,7.0,8.0,9,",
    ]


def test_a_node_with_gpus_has_more_columns(folder: JobFolder) -> None:
    """And a table with a row for each; the driver may not know how busy one is."""
    devices = (DeviceUsage(0, 30, 2 * MB, 80 * MB), DeviceUsage(1, 80, 3 * MB, 80 * MB))
    unknown = (DeviceUsage(0, None, 2 * MB, 80 * MB),)
    for some in (devices, unknown):
        write(folder, UsageMeasured(0, USAGE._replace(devices=some), of_node=True))
    header, known, not_known = content(folder.node_usage(0))
    assert header == f"{CONTRACT},Gpu Percent,Gpu Memory Used (MB),Gpu Memory Total (MB)"
    assert known.endswith(",9,,55.0,5.0,160.0")
    assert not_known.endswith(",9,,,2.0,80.0")
    assert content(folder.device_usage(0)) == [
        "Utc Time,Gpu,Gpu Percent,Gpu Memory Used (MB),Gpu Memory Total (MB)",
        f"{NOW},0,30,2.0,80.0",
        f"{NOW},1,80,3.0,80.0",
        f"{NOW},0,,2.0,80.0",
    ]


def test_the_disks_of_a_node(folder: JobFolder) -> None:
    """Under a path that is on each."""
    write(folder, UsageMeasured(0, USAGE, of_node=True))
    assert content(folder.disk_usage(0)) == [
        "Utc Time,Path,Total (MB),Used (MB),Free (MB),Used Percent",
        f'{NOW},"/work, and so on",200.0,50.0,150.0,25.0',
    ]
    assert not folder.device_usage(0).exists()


def test_the_processes_of_a_node(folder: JobFolder) -> None:
    """From the second row on with the share of a core since the one before."""
    (agent,) = USAGE.agents
    later = USAGE._replace(agents=(agent._replace(sample=LATER, pss_bytes=None, gpu_bytes=MB),))
    write(
        folder,
        UsageMeasured(0, USAGE, of_node=True),
        UsageMeasured(0, later, of_node=False),
    )
    assert content(folder.process_usage(0)) == [
        (
            "Utc Time,Process,Pid,Phase,Mini-batch Id,Processes,Cpu Percent,Cpu Seconds,"
            "Memory Rss (MB),Memory Pss (MB),Disk Read (MB),Disk Write (MB),Gpu Memory (MB)"
        ),
        f"{NOW},process000,41,running,7,2,,10.0,300.0,200.0,5.0,1.0,",
        "2027-01-15T08:00:02.250+00:00,process000,41,running,7,2,150.0,13.0,400.0,,5.0,1.0,1.0",
    ]
    assert len(content(folder.node_usage(0))) == 2, "one worker of a node speaks for it"


def test_the_processes_of_a_minute_are_in_the_folder_of_its_hour(folder: JobFolder) -> None:
    """One file for a minute: the last one."""
    again = USAGE._replace(taken=STARTED + 1, processes="PID\n42\n")
    write(folder, UsageMeasured(0, USAGE, of_node=True), UsageMeasured(0, again, of_node=True))
    (file,) = (folder.logs / "perf" / "0" / "os").rglob("processes_*")
    assert str(file.relative_to(folder.logs)) == "perf/0/os/2027011508/processes_00"
    assert file.read_text() == "PID\n42\n"


def test_the_last_minutes_of_a_process(folder: JobFolder) -> None:
    """Only of one that did not end on its own order."""
    fine = AgentExited("process001", 0, "stopped", expected=True)
    died = AgentExited("process000", -9, "killed", expected=False, usage=(SAMPLE, LATER))
    write(folder, AgentChanged(HERE, fine), AgentChanged(HERE, died))
    assert [file.name for file in (folder.logs / "perf" / "0").iterdir()] == [
        "process000.last_minutes.csv"
    ]
    with folder.last_minutes(0, "process000").open() as file:
        first, last = csv.DictReader(file)
    assert first == {
        "Utc Time": NOW,
        "Phase": "running",
        "Mini-batch Id": "7",
        "Processes": "2",
        "Cpu Percent": "",
        "Memory Rss (MB)": "300.0",
        "Disk Read (MB)": "5.0",
        "Disk Write (MB)": "1.0",
        "Node Memory Available (MB)": "900.0",
        "Container Memory Used (MB)": "",
    }
    assert (last["Cpu Percent"], last["Container Memory Used (MB)"]) == ("150.0", "600.0")


def test_a_table_with_other_columns_is_set_aside(folder: JobFolder) -> None:
    """As that of an earlier run on a node without GPUs: no row stands under a wrong name."""
    device = DeviceUsage(0, 30, 2 * MB, 80 * MB)
    write(folder, UsageMeasured(0, USAGE, of_node=True))
    write(folder, UsageMeasured(0, USAGE._replace(devices=(device,)), of_node=True))
    write(folder, UsageMeasured(0, USAGE, of_node=True))
    tables = sorted(folder.node_usage(0).parent.glob("node_resource_usage*"))
    assert [len(content(table)[0].split(",")) for table in tables] == [14, 17, 14]
    assert [len(content(table)) for table in tables] == [2, 2, 2]
