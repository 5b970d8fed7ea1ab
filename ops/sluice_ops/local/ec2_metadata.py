"""The metadata service of the simulated instances (IMDSv2); embedded platform only.

It serves one folder with a folder for each host. A file such as `ec2-0a1b2c3d/spot/instance-action`
is a notice; without the file, there is none.
"""

import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_urlsafe

from sluice_ops.model.ids import HostName
from sluice_ops.site.files import write_private

ADDRESS = "127.0.0.1"
DATA = "/latest/meta-data/"


class MetadataService:
    """Serves the metadata of all simulated instances at one port."""

    def __init__(self, folder: Path) -> None:
        """Serve the files in `folder`.

        The service keeps its port across restarts if it can, because running agents know the port.
        """
        folder.mkdir(parents=True, exist_ok=True)
        port_file, port = folder / "port", 0
        with suppress(OSError, ValueError):
            port = int(port_file.read_text())
        handler = _handler(folder.resolve())
        try:
            self._server = ThreadingHTTPServer((ADDRESS, port), handler)
        except OSError:
            self._server = ThreadingHTTPServer((ADDRESS, 0), handler)
        write_private(port_file, str(self._server.server_port))
        threading.Thread(target=self._server.serve_forever, name="metadata", daemon=True).start()

    def address(self, host: HostName) -> str:
        """Return the address that the agent of a host asks."""
        return f"http://{ADDRESS}:{self._server.server_port}/{host}"

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()


def _handler(folder: Path) -> type[BaseHTTPRequestHandler]:
    tokens: set[str | None] = set()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            tokens.add(token := token_urlsafe())
            self._answer(HTTPStatus.OK, token.encode())

        def do_GET(self) -> None:
            host, _, name = self.path.lstrip("/").partition(DATA)
            file = (folder / host / name).resolve()
            if self.headers.get("X-aws-ec2-metadata-token") not in tokens:
                self._answer(HTTPStatus.UNAUTHORIZED)
            elif name and file.is_relative_to(folder) and file.is_file():
                self._answer(HTTPStatus.OK, file.read_bytes())
            else:
                self._answer(HTTPStatus.NOT_FOUND)

        def _answer(self, status: HTTPStatus, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: each agent asks every few seconds."""

    return Handler
