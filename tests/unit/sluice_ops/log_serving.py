"""Answers requests for logs in a thread, which ends with the test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sluice_ops.operations.log_requests import LogServer


@contextmanager
def serving(server: LogServer) -> Iterator[None]:
    over = threading.Event()

    def serve() -> None:
        while not over.wait(0.01):
            server.look()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
