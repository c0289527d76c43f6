"""The supervisor's end of the socket: it is never kept waiting by the other one."""

from __future__ import annotations

import os
import socket
import threading
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs._agent.protocol.answers import NoAnswer, dumped
from daskprs._agent.protocol.messages import Started
from daskprs._agent.supervision.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = bytes(3 << 20)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Connection]]:
    """Yield both ends of a socket."""
    ours, theirs = socket.socketpair()
    channel, connection = (
        Channel(Connection(ours.detach()), runs_script=False),
        Connection(theirs.detach()),
    )
    yield channel, connection
    channel.close()
    connection.close()


def all_of(channel: Channel, count: int) -> list[object]:
    """Receive so many messages."""
    messages: list[object] = []
    while len(messages) < count and not channel.closed:
        messages += channel.receive(20.0)
    return messages


def test_messages_of_any_size_arrive_in_order(ends: tuple[Channel, Connection]) -> None:
    """Several small ones come together, and a large one in pieces."""
    channel, connection = ends
    messages = ["a", LARGE, "b", b"", LARGE, "c"]
    sender = threading.Thread(target=lambda: [connection.send(one) for one in messages])
    sender.start()
    assert all_of(channel, len(messages)) == messages
    sender.join()


def test_both_may_send_a_lot_at_the_same_time(ends: tuple[Channel, Connection]) -> None:
    """An agent that waits to be heard reads nothing: the supervisor hears it all the same."""
    channel, connection = ends
    for _ in range(3):
        channel.send(LARGE)
    heard: list[object] = []

    def agent() -> None:
        connection.send(LARGE)
        heard.extend(connection.recv() for _ in range(3))
        connection.send("heard")

    thread = threading.Thread(target=agent)
    thread.start()
    assert all_of(channel, 2) == [LARGE, "heard"]
    thread.join()
    assert heard == [LARGE] * 3


def test_half_a_message_keeps_nobody_waiting(ends: tuple[Channel, Connection]) -> None:
    """An agent may be stopped in the middle of it."""
    channel, connection = ends
    os.write(connection.fileno(), b"\x00\x00\x10")
    assert channel.receive(0.0) == []
    os.write(connection.fileno(), b"\x00half of it")
    assert channel.receive(0.0) == []
    assert not channel.closed


def test_what_was_sent_before_the_end_is_received(ends: tuple[Channel, Connection]) -> None:
    """Also when the end is found out by sending."""
    channel, connection = ends
    connection.send("last words")
    connection.close()
    channel.send(LARGE)
    assert channel.closed
    assert channel.receive(0.0) == ["last words"]
    assert channel.receive(0.0) == []


def test_what_is_no_message_raises(ends: tuple[Channel, Connection]) -> None:
    """A script has written to a descriptor that is not its own."""
    channel, connection = ends
    os.write(connection.fileno(), b"\x00\x00\x00\x05hello")
    with pytest.raises(Exception, match=r"."):
        channel.receive(1.0)


@pytest.mark.parametrize("text", [b"garbage of a script\n", b"x", b"12345", b"\n\n\n\n"])
def test_text_of_a_script_is_not_taken_for_the_length_of_a_message(text: bytes) -> None:
    """Nobody would send the gigabytes that it announces, and the agent would be waited for."""
    ours, theirs = socket.socketpair()
    channel = Channel(Connection(ours.detach()), runs_script=True)
    try:
        theirs.sendall(text)
        if len(text) < 20:
            assert channel.receive(0.01) == []
        body = dumped(Started(2))
        theirs.sendall(len(body).to_bytes(4, "big") + body + bytes(20))
        with pytest.raises(NoAnswer, match="no message begins with b"):
            channel.receive(1.0)
    finally:
        channel.close()
        theirs.close()


@given(
    messages=st.lists(st.one_of(st.text(), st.binary(max_size=20_000)), max_size=8),
    cuts=st.lists(st.integers(1, 50_000)),
)
def test_it_does_not_matter_where_the_bytes_are_cut(
    messages: list[object], cuts: list[int]
) -> None:
    """A message may come in as many pieces as it likes."""
    recorder, reader = socket.socketpair()
    ours, theirs = socket.socketpair()
    channel, connection = (
        Channel(Connection(ours.detach()), runs_script=False),
        Connection(recorder.detach()),
    )
    try:
        received: list[object] = []
        for message in messages:
            connection.send(message)
            whole = reader.recv(1 << 20)
            for cut in [*cuts, len(whole)]:
                theirs.sendall(whole[:cut])
                whole = whole[cut:]
                received += channel.receive(0.0)
            theirs.sendall(whole)
        received += channel.receive(0.0)
        assert received == messages
    finally:
        channel.close()
        connection.close()
        reader.close()
        theirs.close()
