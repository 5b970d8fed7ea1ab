"""`python -m tests.sending KIND …`: send as much as can be sent, or little and in time; `sink` takes it, and tells what it has taken."""

import asyncio
import json
import os
import socket
import sys
import time

BLOCK = b"sluice" * 10_000
CHILDREN = 2
CONNECTIONS = 2
"""Of each child."""
ASK = b"?" * 100
ECHO = 7000
"""What is sent to this port comes back."""


def flood(address: str, port: str) -> None:
    """Send from children, on connections that they open themselves."""
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


def ask(address: str, seconds: str) -> None:
    """Say how long each of many questions took to be answered, in milliseconds."""
    took, end = [], time.monotonic() + float(seconds)
    with socket.create_connection((address, ECHO)) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.monotonic() < end:
            asked, left = time.monotonic(), len(ASK)
            link.sendall(ASK)
            while left:
                left -= len(link.recv(left))
            took.append((time.monotonic() - asked) * 1000)
            time.sleep(0.02)
    sys.stdout.write(json.dumps(took))


async def sink(*ports: str) -> None:
    """Take all that comes; say for each line of the input how many bytes came to each port."""
    taken = dict.fromkeys(ports, 0)

    async def take(port: str, reader: asyncio.StreamReader) -> None:
        while block := await reader.read(1 << 20):
            taken[port] += len(block)

    async def back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while block := await reader.read(1 << 16):
            writer.write(block)

    for port in ports:
        await asyncio.start_server(lambda reader, _, port=port: take(port, reader), "0.0.0.0", int(port))  # noqa: S104
    await asyncio.start_server(back, "0.0.0.0", ECHO)  # noqa: S104
    sys.stdout.write("{}\n")
    while True:
        sys.stdout.flush()
        if not await asyncio.to_thread(sys.stdin.readline):
            os._exit(0)
        sys.stdout.write(f"{json.dumps(taken)}\n")


def main() -> None:
    kind, *more = sys.argv[1:]
    if kind == "sink":
        asyncio.run(sink(*more))
    elif kind == "flood":
        flood(*more)
    else:
        ask(*more)


if __name__ == "__main__":
    main()
