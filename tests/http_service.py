"""HTTP servers of tests."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from typing import Any, TypeVar

Server = TypeVar("Server", bound=HTTPServer)


class Quiet:
    """For a handler that writes no log."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in BaseHTTPRequestHandler
        pass


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Let a server answer until the block ends."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
