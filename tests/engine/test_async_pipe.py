"""The app's end of the pipe: whole messages out of any pieces, at the pace that was asked for."""

import asyncio
import os
import socket
import time

from localinfer.engine.async_pipe import AsyncPipe
from localinfer.engine.pipe import packed


async def connected():
    """(pipe, the engine's end, what arrived: (seconds since now, message))"""
    ours, theirs = socket.socketpair()
    started, arrived = time.perf_counter(), []
    pipe = await AsyncPipe.connect(ours, lambda message: arrived.append((time.perf_counter() - started, message)))
    return pipe, theirs, arrived


async def until_arrived(arrived, n):
    async with asyncio.timeout(10):
        while len(arrived) < n:
            await asyncio.sleep(0.001)


async def test_messages_arrive_whole_however_they_are_cut():
    pipe, theirs, arrived = await connected()
    messages = ["a", ("event", list(range(300))), b"\0" * 70_000, ""]
    data = b"".join(map(packed, messages))
    for start in range(0, len(data), 4099):
        theirs.send(data[start : start + 4099])
        await asyncio.sleep(0)
    await until_arrived(arrived, len(messages))
    assert [message for _, message in arrived] == messages
    pipe.close()


async def test_what_comes_within_the_pace_is_delivered_together():
    pipe, theirs, arrived = await connected()
    pipe.pace_s = 0.2
    for n in range(4):
        theirs.send(packed(n))
        await asyncio.sleep(0.03)
    await until_arrived(arrived, 4)
    times = [at for at, _ in arrived]
    assert [message for _, message in arrived] == [0, 1, 2, 3]
    assert times[1] - times[0] >= 0.19  # the first at once, the others when its time has passed
    assert times[3] - times[1] < 0.1
    pipe.close()


async def test_the_end_is_seen_after_what_came_before_it():
    pipe, theirs, arrived = await connected()
    pipe.pace_s = 0.05
    theirs.send(packed("first"))
    await until_arrived(arrived, 1)
    theirs.send(packed("last"))
    theirs.close()
    await asyncio.wait_for(pipe.ended(), 10)
    assert [message for _, message in arrived] == ["first", "last"]


async def test_closing_in_the_middle_of_a_pause_ends_it():
    pipe, theirs, arrived = await connected()
    pipe.pace_s = 0.02
    theirs.send(packed("one"))
    await until_arrived(arrived, 1)
    pipe.close()
    await asyncio.wait_for(pipe.ended(), 10)
    await asyncio.sleep(0.05)  # past the pause: nothing is read from a closed pipe
    assert len(arrived) == 1
    assert os.read(theirs.fileno(), 1) == b""
    theirs.close()
