"""Sends messages to the channels of the site file, outside the controller's passes.

Each channel has a thread of its own, so that a dead one delays neither a decision nor another
channel. The results wait until the leader's next turn records them. A message whose delivery was
not recorded is sent again: a channel may get a message twice, and never not at all.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import structlog

from sluice_ops.model.alert import FILE, AlertChannel, Message, News, Severity

log = structlog.get_logger()

FIRST_DELAY_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 300.0
"""The longest pause of a channel after a failed delivery. The pause doubles from the first one."""
SECRET = "…"  # noqa: S105 - stands for one


@dataclass(frozen=True)
class Sent:
    """The result of one try."""

    number: int
    channel: str
    error: str | None
    """Why the channel did not take the message; None: it did."""


Send = Callable[[AlertChannel, Message], str | None]
"""Sends a message, and returns why that failed; None if it did not."""


def send_by_apprise(channel: AlertChannel, message: Message) -> str | None:
    """Send a message by apprise. The error contains neither the URL nor a password."""
    import apprise  # noqa: PLC0415 - only a leader with channels needs it; it loads 100 modules

    url = channel.url.get_secret_value()
    try:
        if url.startswith(FILE):
            url = Path(url.removeprefix(FILE)).read_text().strip()
    except OSError as error:
        return f"{channel.url.get_secret_value()}: {error.strerror}"
    receiver = apprise.Apprise.instantiate(url, asset=apprise.AppriseAsset(app_id="Sluice"))
    if receiver is None:
        return "apprise cannot use this URL; its documentation lists the forms of each service"
    kinds = {News.RECOVERED: apprise.NotifyType.SUCCESS, News.TEST: apprise.NotifyType.INFO}
    urgent = apprise.NotifyType.FAILURE
    usual = urgent if message.severity is Severity.CRITICAL else apprise.NotifyType.WARNING
    with _Reasons() as reasons:
        taken = receiver.notify(
            title=message.title,
            body=message.text,
            notify_type=kinds.get(message.news, usual),
            body_format=apprise.NotifyFormat.TEXT,
        )
    if taken:
        return None
    return _without_secrets("; ".join(reasons.lines) or "the service gave no reason", receiver.password, url)


class _Reasons(logging.Handler):
    """Collects what apprise logs in this thread, where apprise says why a delivery failed.

    Nothing of it reaches the controller's log, because it may contain a part of the URL.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._thread = threading.get_ident()
        self._log = logging.getLogger("apprise")

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.lines.append(record.getMessage())

    def __enter__(self) -> Self:
        self._log.propagate = False
        self._log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)


def _without_secrets(text: str, *secrets: str | None) -> str:
    for secret in secrets:
        text = text.replace(secret, SECRET) if secret else text
    return " ".join(text.split())[:300]


@dataclass
class _Worker:
    """The thread of one channel, and its messages by number."""

    channel: AlertChannel
    queue: dict[int, Message] = field(default_factory=dict)
    failures: int = 0
    due: float = 0.0


class Delivery:
    """The queues of all channels."""

    def __init__(self, send: Send = send_by_apprise, clock: Callable[[], float] = time.monotonic) -> None:
        """Send by `send`; `clock` is monotonic."""
        self._send = send
        self._clock = clock
        self._changed = threading.Condition()
        self._workers: dict[str, _Worker] = {}
        self._taken: set[tuple[int, str]] = set()
        """Deliveries that are done, but perhaps not yet recorded."""
        self._results: list[Sent] = []

    def offer(self, messages: Iterable[Message], channels: Mapping[str, AlertChannel]) -> None:
        """Take the messages that wait. A channel that is not named any more ends its thread."""
        waiting = list(messages)
        with self._changed:
            for name in [
                name for name, worker in self._workers.items() if worker.channel != channels.get(name)
            ]:
                del self._workers[name]
            for name, channel in channels.items():
                queue = {
                    message.number: message
                    for message in waiting
                    if name in message.to and (message.number, name) not in self._taken
                }
                if name not in self._workers and queue:
                    self._workers[name] = worker = _Worker(channel)
                    threading.Thread(
                        target=self._work, args=(name, worker), name=f"alerts {name}", daemon=True
                    ).start()
                if name in self._workers:
                    self._workers[name].queue = queue
            numbers = {message.number for message in waiting}
            self._taken = {taken for taken in self._taken if taken[0] in numbers}
            self._changed.notify_all()

    def stop(self) -> None:
        """Drop all messages: another controller leads and sends them."""
        with self._changed:
            self._workers.clear()
            self._taken.clear()
            self._results.clear()
            self._changed.notify_all()

    def results(self) -> list[Sent]:
        """Return the results since the last call."""
        with self._changed:
            results, self._results = self._results, []
        return results

    def _work(self, name: str, worker: _Worker) -> None:
        while True:
            with self._changed:
                while self._workers.get(name) is worker and (not worker.queue or self._clock() < worker.due):
                    self._changed.wait(max(0.01, worker.due - self._clock()) if worker.queue else None)
                if self._workers.get(name) is not worker:
                    return
                message = worker.queue[min(worker.queue)]
            try:
                error = self._send(worker.channel, message)
            except Exception as failure:  # noqa: BLE001 - of a service's code; its text may hold the URL
                error = f"{type(failure).__name__} in the code for this service"
            self._note(name, worker, message, error)

    def _note(self, name: str, worker: _Worker, message: Message, error: str | None) -> None:
        if error is not None:
            log.warning("an alert could not be sent", channel=name, alert=message.key, error=error)
        with self._changed:
            if self._workers.get(name) is not worker:
                return
            if error is None:
                worker.queue.pop(message.number, None)
                worker.failures, worker.due = 0, 0.0
                self._taken.add((message.number, name))
            else:
                delay = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(worker.failures, 10))
                worker.failures, worker.due = worker.failures + 1, self._clock() + delay
            self._results.append(Sent(message.number, name, error))
