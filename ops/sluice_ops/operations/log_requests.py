"""Ask a process on another machine for lines of its logs through the channel, and answer.

The operator makes an ephemeral node, and the process an ephemeral answer beside it. Whoever dies in
between leaves nothing behind.
"""

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import structlog
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pydantic import ValidationError

from sluice_ops.channel import Channel, ChannelAwayError, ConflictError
from sluice_ops.model.access import parent
from sluice_ops.model.logs import ANSWER, Answering, LogAnswer, LogPart, LogRequest
from sluice_ops.operations.sealing import SealError, public_key, seal, unseal

log = structlog.get_logger()

ANSWER_SECONDS = 10.0
"""How long an operator waits for an answer."""
POLL_SECONDS = 0.05
LOOK_SECONDS = 30.0
"""The longest time between two looks for requests, which corrects a missed watch."""
MOST_ANSWERS = 8
"""How many answers of a process are in the channel at once; other requests wait."""
PURPOSE = "lines of a log"


class NoAnswerError(Exception):
    """The process did not answer in time; the message says what may be the reason."""


def new_request() -> str:
    """Return a name for a request."""
    return secrets.token_hex(8)


def ask(channel: Channel, path: str, request: LogRequest, seconds: float = ANSWER_SECONDS) -> LogPart:
    """Post a request at `path`, and return the answer.

    `key` of the request is replaced. NoAnswerError if the process does not answer in time, or knows
    no such requests.
    """
    private = X25519PrivateKey.generate()
    if not channel.exists(parent(path)):
        message = f"{request.to} answers no requests for logs: its version of Sluice is older, or it starts"
        raise NoAnswerError(message)
    channel.create(path, request.model_copy(update={"key": public_key(private)}), ephemeral=True)
    try:
        until = time.monotonic() + seconds
        while (answer := channel.read(path + ANSWER, LogAnswer)) is None:
            if time.monotonic() > until:
                message = f"{request.to} did not answer within {seconds:.0f} s"
                raise NoAnswerError(message)
            time.sleep(POLL_SECONDS)
        return LogPart.model_validate_json(unseal(answer.value.data, private, PURPOSE), extra="ignore")
    except (SealError, ValidationError) as error:
        message = f"the answer of {request.to} cannot be read: {error}"
        raise NoAnswerError(message) from error
    finally:
        with suppress(ChannelAwayError, ConflictError):  # the request ends with the session
            channel.delete(path)


class LogServer:
    """Answers requests for the logs of one process, in a thread of its own."""

    def __init__(
        self, channel: Channel, where: str, name: str, read: Callable[[LogRequest], LogPart]
    ) -> None:
        """Answer requests below `where` to the host or the controller of this name."""
        self._channel, self._where, self._name, self._read = channel, where, name, read
        self._wake = threading.Event()
        self._away = False
        channel.on_change(self._changed)

    def start(self) -> None:
        """Answer until the process ends."""
        threading.Thread(target=self._serve, name="logs", daemon=True).start()

    def _changed(self, path: str | None) -> None:
        if path in {None, self._where, parent(self._where)}:
            self._wake.set()

    def _serve(self) -> None:
        while True:
            try:
                if self._channel.connected:
                    self.look()
                    self._away = False
            except (ChannelAwayError, ConflictError) as error:
                if not self._away:
                    log.warning("requests for logs cannot be answered; the process retries", error=str(error))
                self._away = True
            self._wake.wait(LOOK_SECONDS)
            self._wake.clear()

    def look(self) -> None:
        """Answer the requests without an answer, and delete the answers without a request."""
        channel = self._channel
        if not channel.exists(parent(self._where), watch=True):
            return  # not registered yet
        if not channel.exists(self._where):
            channel.create(self._where, Answering(name=self._name))
        names = channel.children(self._where, watch=True)
        requests = {name for name in names if not name.endswith(ANSWER)}
        answers = {name.removesuffix(ANSWER) for name in names if name.endswith(ANSWER)}
        for name in answers - requests:
            channel.delete(f"{self._where}/{name}{ANSWER}")
        free = MOST_ANSWERS - len(answers & requests)
        for name in sorted(requests - answers)[:free]:
            self._answer(f"{self._where}/{name}")

    def _answer(self, path: str) -> None:
        request = self._channel.read(path, LogRequest)
        if request is None or request.value.to != self._name:
            return
        part = self._read(request.value)
        try:
            data = seal(part.model_dump_json(), request.value.key, PURPOSE)
        except SealError:
            return  # without a valid key nobody can read an answer
        self._channel.create(path + ANSWER, LogAnswer(data=data), ephemeral=True)
