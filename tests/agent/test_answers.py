"""What an agent sends is parsed: no bytes of its script run code in the worker."""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs import parallel_run
from daskprs._agent.protocol.answers import NoAnswer, check_beginning, dumped, parsed
from daskprs._agent.protocol.messages import InitDone, InitRaised, Outcomes, Started, Stopped
from daskprs._core.columnar import ColumnBatch
from daskprs._core.outcomes import Extent, Failure, Outcome, Printed, Results, Status
from tests.support.canary import Canary

if TYPE_CHECKING:
    from pathlib import Path

FAILURE = Failure("ValueError", "half a character: \ud800", "Traceback …", retryable=False)
DONE = Outcome(
    7, 1, Status.RUN_DONE, 5, 5, 1e9, 0.5, 0.25, 0.1, Extent(3, 9), None, "a b", peak_bytes=1 << 40
)
RAISED = DONE._replace(
    index=8,
    status=Status.RUN_EXCEPTION,
    text=None,
    failure=FAILURE,
    printed=Printed((0, 4), (-1, -1)),
    header=None,
)


def outcomes(*some: Outcome, payload: bytes = b"", spool: str = "") -> Outcomes:
    """Return a message of outcomes."""
    return Outcomes(3, Results(ColumnBatch(some), payload, spool))


@pytest.mark.parametrize(
    "answer",
    [
        Started(6),
        InitDone(0.5),
        InitDone(4.5, 4.1, ("torch", "transformers")),
        InitRaised(FAILURE),
        Stopped(None),
        Stopped(FAILURE),
        outcomes(),
        outcomes(DONE, RAISED, payload=b"abc"),
        outcomes(DONE, RAISED._replace(failure=FAILURE._replace(fatal=True)), payload=b"abc"),
        outcomes(RAISED)._replace(halted=""),
        outcomes(DONE._replace(text=Extent(3, 9, 100)), RAISED, spool="0-process000-ab"),
        outcomes(RAISED, RAISED._replace(usage=(("tokens", 3.0), ("é" * 32, 0.5)))),
    ],
    ids=lambda one: type(one).__name__,
)
def test_answers_arrive_as_they_were_sent(answer: Any) -> None:
    """Also what travels on to the driver, which unpickles what the worker has made."""
    body = dumped(answer)
    check_beginning(body)
    there = parsed(body)
    assert there == answer
    assert pickle.loads(pickle.dumps(there)) == answer


def test_numbers_of_numpy_arrive_as_numbers() -> None:
    """A reader may count its rows in them."""
    there = parsed(dumped(outcomes(RAISED._replace(total=np.int64(5)))))
    assert isinstance(there, Outcomes)
    assert there.results.outcomes[0].total == 5


def forged(*values: Any, payload: bytes = b"") -> bytes:
    """Return values as an agent would send them."""
    head = msgpack.packb(values, unicode_errors="surrogatepass")
    return struct.pack("!I", len(head)) + head + payload


def columns(**wrong: Any) -> list[list[Any]]:
    """Return the columns of one outcome, some of them wrong."""
    return [[wrong.get(name, value)] for name, value in DONE._asdict().items()]


@pytest.mark.attack
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01\xc0",
        forged(),
        forged("Nothing", 1),
        forged("Started", 1, 6),
        forged("Started", True),
        forged("Started", -1),
        forged("Started", 6, payload=b"more"),
        forged("InitDone", float("nan"), 0.0, []),
        forged("InitDone", 1.0, 0.0, ["a package"]),
        forged("InitDone", 1.0, 0.0, ["a"] * 11),
        forged("InitDone", 1.0, 0.0, ["a" * 1001]),
        forged("InitRaised", None),
        forged("Stopped", ["ValueError", "", "", 1, "", False]),
        forged("Outcomes", 3, columns()[:4], "", "", None),
        forged("Outcomes", 3, [*columns()[1:], [1, 2]], "", "", None, payload=b"abc"),
        forged("Outcomes", 3, [[]] * len(DONE), "", "", None),
        forged("Outcomes", 3, columns(status="NODE_LOST"), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(usage=[]), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(usage=[["a", -1.0]]), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(usage=[["a", "b"]]), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(usage=[["a", 1.0]] * 2), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(usage=[["a" * 65, 1.0]]), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(status=["RUN_DONE"]), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(columns=""), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(index=-1), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(total=2**63), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(text=[-3, 9, None]), "", "", None),
        forged("Outcomes", 3, columns(text=[3, 2**32, None]), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(text=[3, 9, -1]), "spool", "", None),
        forged("Outcomes", 3, columns(text=[3, 9, 0]), "", "", None),
        forged("Outcomes", 3, columns(), "", "", None, payload=b"abcd"),
        forged("Outcomes", 3, columns(), "", "", None),
        forged("Outcomes", 3, columns(), None, "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(failure=list(FAILURE)), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(status="RUN_EXCEPTION"), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(printed=[[0, 1]]), "", "", None, payload=b"abc"),
        forged("Outcomes", 3, columns(), "", "", 5, payload=b"abc"),
        b"\x00\x01\x00\x00" + b"\x91" * (1 << 16),
    ],
)
def test_whatever_is_wrong_in_an_answer_is_refused(body: bytes) -> None:
    """Every value is checked for its type and its bounds."""
    with pytest.raises(NoAnswer):
        parsed(body)


@given(body=st.binary())
def test_any_bytes_are_an_answer_or_are_refused(body: bytes) -> None:
    """Nothing else is raised."""
    for one in (body, struct.pack("!I", len(body)) + body):
        try:
            parsed(one)
        except NoAnswer:
            continue


@pytest.mark.attack
def test_a_pickle_of_the_script_runs_nowhere(tmp_path: Path) -> None:
    """It ends the agent, and its own mini-batch is blamed; the message names the cause."""
    canary, script = tmp_path / "canary", tmp_path / "forging.py"
    pickle.loads(pickle.dumps(Canary(canary)))
    assert canary.exists()  # whoever unpickles it makes the file
    canary.unlink()
    body = pickle.dumps(Canary(canary))
    script.write_text(
        "import os, signal, stat, struct\n"
        f"BODY = {body!r}\n"
        "def run(mini_batch):\n"
        "    if mini_batch[0].endswith('1.txt'):\n"
        "        for fd in map(int, os.listdir('/proc/self/fd')):\n"
        "            try:\n"
        "                if stat.S_ISSOCK(os.fstat(fd).st_mode):\n"
        "                    os.write(fd, struct.pack('!i', len(BODY)) + BODY)\n"
        "            except OSError:\n"
        "                pass\n"
        "        signal.pause()\n"
        "    return mini_batch\n"
    )
    result = parallel_run(
        [str(tmp_path / name) for name in _files(tmp_path)],
        str(script),
        job_dir=tmp_path / "job",
        mini_batch_size=1,
        run_max_try=1,
        process_count_per_node=1,
        allowed_failed_count=1,
        progress=False,
    )
    assert not canary.exists()
    assert result.mini_batches.succeeded == 2
    (error,) = result.failed["error"]
    assert "its socket to daskprs had bytes that an agent does not send" in error


def _files(folder: Path) -> list[str]:
    names = [f"{number}.txt" for number in range(3)]
    for name in names:
        (folder / name).write_text("a")
    return names
