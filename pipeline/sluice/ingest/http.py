"""Take records over HTTP, and write them into a stream.

`python -m sluice.ingest.http --stream raw --name web --port 8080`, as `sluice ingest http` does.
"""

import argparse
import asyncio
import hmac
import ipaddress
import socket
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sluice.ingest import source_metrics
from sluice.ingest.process import parser, run, watchdog
from sluice.ingest.registration import Measured, Registration, new_record
from sluice.ingest.request_writer import AWAY_SECONDS, RequestWriter
from sluice.ingest.requests import Answers, RefusedError, digest, key_digest, parse
from sluice.ingest.source import Source, SourceError
from sluice.ingest.source_metrics import Gauges, SourceMetrics
from sluice.ingest.throttle import admitted
from sluice_ops.channel import Channel
from sluice_ops.model.kafka_access import User
from sluice_ops.model.source import SourceKind
from sluice_ops.process.watchdog import Watchdog
from sluice_ops.site import endpoints
from sluice_ops.site.brokers import OTHERS

log = structlog.get_logger()

BODY_BYTES = 4 * 1024 * 1024
"""The largest body of a request."""
ANSWER_SECONDS = 30.0
"""The longest wait for Kafka. Afterwards it is unknown whether the records are written."""
MOST_REQUESTS = 256
"""With more open connections, further requests are refused."""
TURN_SECONDS = 1.0
IPV6 = 6
TOKEN_LENGTH = 16
"""The shortest token."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def tokens(file: Path | None, address: Address) -> list[bytes]:
    """Return the tokens of clients, one from each line of a file; none without a file.

    SourceError if others can read the file, or if no token protects an address of the network.
    """
    if file is None:
        if not address.is_loopback:
            message = f"--address {address}: everybody on the network could write; add --token-file FILE"
            raise SourceError(message)
        return []
    try:
        lines, mode = file.read_text().split(), file.stat().st_mode
    except OSError as error:
        message = f"the tokens in {file} cannot be read: {error.strerror}"
        raise SourceError(message) from error
    if mode & OTHERS:
        message = f"every user of this machine can read {file}; run: chmod o= {file}"
        raise SourceError(message)
    if not lines or min(map(len, lines)) < TOKEN_LENGTH:
        message = f"{file} must have a token of at least {TOKEN_LENGTH} characters in each line"
        raise SourceError(message)
    return [line.encode() for line in lines]


Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def watched(dog: Watchdog) -> Lifespan:
    """Return the life of an application whose event loop the watchdog watches."""

    async def turn() -> None:
        while True:
            dog.turn()
            await asyncio.sleep(TURN_SECONDS)

    @asynccontextmanager
    async def life(_app: Starlette) -> AsyncIterator[None]:
        dog.start()
        turning = asyncio.create_task(turn())
        try:
            yield
        finally:
            dog.stop()
            turning.cancel()

    return life


def application(
    writer: RequestWriter,
    valid_tokens: Sequence[bytes],
    field: str | None,
    by_status: Counter[int],
    lifespan: Lifespan | None = None,
) -> Starlette:
    """Return the application: POST /records, and GET /health.

    Answers to records are counted by their status.
    """

    async def records(request: Request) -> Response:
        try:
            _check_token(request, valid_tokens)
            response = await _answer(writer, request, field)
        except ClientDisconnect:
            response = Response(status_code=400)
        except RefusedError as error:
            response = _refusal(error)
        by_status[response.status_code] += 1
        return response

    async def health(_request: Request) -> Response:
        if (trouble := writer.trouble(time.monotonic())) is not None:
            return JSONResponse({"status": trouble}, 503)
        return JSONResponse({"status": "ok"})

    return Starlette(
        routes=[Route("/records", records, methods=["POST"]), Route("/health", health, methods=["GET"])],
        lifespan=lifespan,
    )


def _check_token(request: Request, valid_tokens: Sequence[bytes]) -> None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    sent_token = token.strip().encode() if scheme.lower() == "bearer" else b""
    if valid_tokens and not any(hmac.compare_digest(sent_token, valid) for valid in valid_tokens):
        message = "the header Authorization needs: Bearer and a token of this source"
        raise RefusedError(401, message)


async def _answer(writer: RequestWriter, request: Request, field: str | None) -> Response:
    header = request.headers.get("idempotency-key")
    key, body = key_digest(header), await _body(request)
    sent = parse(body, request.headers.get("content-type", ""), field)
    place = uuid.uuid4().hex if header is None else header
    future = asyncio.wrap_future(writer.submit(key, digest(body), place, sent))
    try:
        answer = await asyncio.wait_for(asyncio.shield(future), ANSWER_SECONDS)
    except TimeoutError:
        message = (
            f"Kafka has not answered within {ANSWER_SECONDS:.0f} s; repeat with the same Idempotency-Key"
        )
        raise RefusedError(503, message, after=AWAY_SECONDS) from None
    return JSONResponse({"records": answer.records})


async def _body(request: Request) -> bytes:
    """Return the body; RefusedError if it is too large or compressed."""
    too_large = RefusedError(413, f"the body has more than {BODY_BYTES} bytes; send several requests")
    if (encoding := request.headers.get("content-encoding", "identity")) != "identity":
        raise RefusedError(415, f"Content-Encoding {encoding!r} is not supported; send the body as it is")
    if int(request.headers.get("content-length", "0")) > BODY_BYTES:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            raise too_large
    return bytes(body)


def _refusal(error: RefusedError) -> Response:
    content: dict[str, object] = {"error": str(error)}
    headers = {}
    if error.line is not None:
        content["line"] = error.line
    if error.after is not None:
        headers["Retry-After"] = str(error.after)
    if error.status == 401:  # noqa: PLR2004 — a status of HTTP
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(content, error.status, headers)


def _listening(address: Address, port: int) -> socket.socket:
    """Return a socket at the address; SourceError if another process has it."""
    family = socket.AF_INET6 if address.version == IPV6 else socket.AF_INET
    try:
        return socket.create_server((str(address), port), family=family)
    except OSError as error:
        message = f"the source cannot listen at {address}, port {port}: {error.strerror}"
        raise SourceError(message) from error


def gauges(writer: RequestWriter) -> Gauges:
    """Return the gauges of a source that takes records over HTTP."""
    return (("waiting_bytes", "Bytes of requests that wait for Kafka.", lambda: writer.waiting_bytes),)


def serve(chosen: argparse.Namespace, stop: threading.Event) -> None:
    """Serve clients until a signal, or until another process owns the source."""
    valid_tokens = tokens(chosen.token_file, chosen.address)
    where = endpoints.load()
    # before the source is taken over: a second process here must not end the first
    with _listening(chosen.address, chosen.port) as listening:
        registry = source_metrics.serve(chosen.metrics)
        source = Source(where.kafka_as(User.OUTSIDE), chosen.stream, chosen.name, stopped=stop.is_set)
        answers = Answers(source.take_over())
        log.info("source started", source=chosen.name, stream=chosen.stream, remembered=len(answers))
        writer = RequestWriter(source, answers, stop)
        by_status: Counter[int] = Counter()
        registry.register(SourceMetrics(chosen.name, writer.written, gauges(writer), by_status))
        address = f"[{chosen.address}]" if chosen.address.version == IPV6 else chosen.address
        registration = Registration(
            where,
            new_record(chosen.name, chosen.stream, SourceKind.HTTP, f"http://{address}:{chosen.port}"),
            partial(measured, writer, by_status),
            writer.written.trouble,
            stop,
            metrics=chosen.metrics,
            follow=partial(_throttle, writer, chosen.stream),
        )
        with registration:
            dog = watchdog("server", registration.hung)
            server = uvicorn.Server(
                uvicorn.Config(
                    application(writer, valid_tokens, chosen.key, by_status, watched(dog)),
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    limit_concurrency=MOST_REQUESTS,
                    timeout_graceful_shutdown=round(ANSWER_SECONDS) + 5,
                )
            )
            writing = threading.Thread(
                target=_write, args=(writer, server, watchdog("writer", registration.hung)), name="writer"
            )
            writing.start()
            try:
                server.run(sockets=[listening])  # ends at SIGTERM, once open requests are answered
            finally:
                writer.close()
                writing.join()
            if writer.ended is not None:
                raise writer.ended
            if not stop.is_set():  # no signal has ended the server
                message = f"the writer of source {chosen.name} failed; the log has the error"
                raise SourceError(message)
    log.info("source stopped", source=chosen.name)


def measured(writer: RequestWriter, by_status: Counter[int]) -> Measured:
    """Return the figures of a source that takes records over HTTP."""
    return Measured(
        records=writer.written.records,
        last=writer.written.last or None,
        refused=writer.written.refused,
        waiting_bytes=writer.waiting_bytes,
        throttled=by_status[429],
    )


def _throttle(writer: RequestWriter, stream: str, channel: Channel | None) -> None:
    """Let in what the tiers take. While ZooKeeper is away, nothing is throttled: the stream keeps
    what the tiers do not take.
    """
    writer.throttle(None if channel is None else admitted(channel, stream))


def _write(writer: RequestWriter, server: uvicorn.Server, dog: Watchdog) -> None:
    dog.start()
    try:
        writer.run(dog.turn)
    finally:
        dog.stop()
        server.should_exit = True


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve clients until Ctrl-C or SIGTERM."""
    options = parser("sluice.ingest.http", "Take records over HTTP, and write them into a stream.")
    options.add_argument("--port", type=int, required=True, help="the port for clients")
    options.add_argument(
        "--address", type=ipaddress.ip_address, default="127.0.0.1", help="the address for clients"
    )
    options.add_argument("--token-file", type=Path, help="a file with the tokens of clients, one a line")
    return run(options.parse_args(arguments), serve)


if __name__ == "__main__":
    sys.exit(main())
