"""`python -m tests.traffic KIND …`: send traffic to another host, or receive and count it.

- `flood`: send as much as possible.
- `ask`: send small messages and measure their round trips.
- `sink`: receive, echo, and report the received bytes.
"""

import asyncio
import json
import os
import socket
import sys
import time

BLOCK = b"sluice" * 10_000
CHILDREN = 2
CONNECTIONS = 2
"""Connections of each child."""
QUESTION = b"?" * 100
ECHO_PORT = 7000
"""The sink sends back what arrives at this port."""


def flood(address: str, port: str) -> None:
    """Send from several children, on connections that each child opens."""
    for _ in range(CHILDREN):
        if os.fork() == 0:
            break
    else:
        os.wait()
        return
    links = [socket.create_connection((address, int(port))) for _ in range(CONNECTIONS)]
    for link in links[1:]:
        if os.fork() == 0:
            link.sendall(BLOCK)
            links[0] = link
            break
    while True:
        links[0].sendall(BLOCK)


def measure_round_trips(address: str, seconds: str) -> None:
    """Send many small messages; print the round trip of each in milliseconds."""
    milliseconds, end = [], time.monotonic() + float(seconds)
    with socket.create_connection((address, ECHO_PORT)) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.monotonic() < end:
            sent_at, left = time.monotonic(), len(QUESTION)
            link.sendall(QUESTION)
            while left:
                left -= len(link.recv(left))
            milliseconds.append((time.monotonic() - sent_at) * 1000)
            time.sleep(0.02)
    sys.stdout.write(json.dumps(milliseconds))


async def sink(*ports: str) -> None:
    """Receive all bytes; for each line from stdin print the bytes received on each port."""
    received = dict.fromkeys(ports, 0)

    async def receive(port: str, reader: asyncio.StreamReader) -> None:
        while block := await reader.read(1 << 20):
            received[port] += len(block)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while block := await reader.read(1 << 16):
            writer.write(block)

    for port in ports:
        await asyncio.start_server(lambda reader, _, port=port: receive(port, reader), "0.0.0.0", int(port))  # noqa: S104
    await asyncio.start_server(echo, "0.0.0.0", ECHO_PORT)  # noqa: S104
    sys.stdout.write("{}\n")
    while True:
        sys.stdout.flush()
        if not await asyncio.to_thread(sys.stdin.readline):
            os._exit(0)
        sys.stdout.write(f"{json.dumps(received)}\n")


def main() -> None:
    kind, *more = sys.argv[1:]
    if kind == "sink":
        asyncio.run(sink(*more))
    elif kind == "flood":
        flood(*more)
    else:
        measure_round_trips(*more)


if __name__ == "__main__":
    main()
