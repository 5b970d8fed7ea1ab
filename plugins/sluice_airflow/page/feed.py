"""The state of one pipeline, which one thread of the API server reads for all browsers."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sluice_airflow.page.last_hour import LastHour
from sluice_ops.channel import ChannelAwayError, ConflictError

WATCHED_SECONDS, IDLE_SECONDS = 2.0, 15.0
"""How often the state is read while a browser watches, and for the sparklines alone."""
TOGETHER_SECONDS = 0.2
"""How long changes of nodes are collected, because one decision writes several nodes."""
FRESH_SECONDS = 1.0
"""How old the state of an answer may be."""
STREAM_SECONDS = 30.0
"""How long one stream of events lasts.

The browser opens the next one by itself, and Airflow checks the user again. A longer stream would
delay the end of the API server, which waits for open answers.
"""
log = logging.getLogger(__name__)
AWAY = (ChannelAwayError, ConflictError, FileNotFoundError, ValueError)
"""ZooKeeper does not answer, or a connection or file does not name it."""

Sections = dict[str, str]
"""The name of a part of the state → its JSON."""


class Feed:
    """Reads the state, and tells the streams of events that it has changed."""

    def __init__(self, read: Callable[[], dict[str, Any]], now: Callable[[], float] = time.time) -> None:
        """Read with `read`; the sentence of its error is shown to people."""
        self._read = read
        self._now = now
        self._reading = threading.Lock()
        self._asking = threading.Lock()
        self._tried = 0.0
        """When the last look ended, in monotonic seconds; 0: never."""
        self._hour = LastHour()
        self._sections: Sections = {}
        self._bells: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def sections(self) -> Sections:
        """The state of the last look.

        `at` is the time of the last look that succeeded, and `stale` says why the looks since then
        failed.
        """
        return self._sections

    def fresh(self) -> Sections:
        """Return the state, after a look if the last one is too old."""
        with self._asking:  # requests that come during a slow look share it
            if not self._tried or time.monotonic() - self._tried > FRESH_SECONDS:
                self.look()
        return self._sections

    def look(self) -> None:
        """Read the state once. If that fails, the last state stays, with the reason in `stale`."""
        with self._reading:
            at = self._now()
            try:
                state = self._read()
            except AWAY as error:
                parts = self._stale(at, str(error))
            except Exception as error:  # the thread has to go on for all browsers
                log.exception("the page cannot read the state of the pipeline")
                parts = self._stale(
                    at, f"{type(error).__name__}: {error}; see the log of Airflow's API server"
                )
            else:
                self._hour.add(at, state["tiers"])
                parts = {**state, "last_hour": self._hour.series(), "at": at, "stale": None}
            written = {name: json.dumps(value) for name, value in parts.items()}
            self._sections = {**self._sections, **written}
            self._tried = time.monotonic()
        for bell, loop in list(self._bells.items()):
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(bell.set)

    def start(self) -> None:
        """Look from now on, also without a browser, so that the sparklines have the last hour."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="sluice-page", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Look soon, because a node has changed. Without a browser, nothing happens."""
        if self._bells:
            self._wake.set()

    @contextmanager
    def subscribe(self) -> Iterator[asyncio.Event]:
        """Yield an event of the running loop, which is set after each look."""
        bell = asyncio.Event()
        self._bells[bell] = asyncio.get_running_loop()
        self.start()
        self._wake.set()
        try:
            yield bell
        finally:
            del self._bells[bell]

    def _stale(self, at: float, sentence: str) -> dict[str, Any]:
        since = json.loads(self._sections.get("at", str(at)))
        return {"stale": {"since": since, "sentence": sentence}}

    def _follow(self) -> None:
        """Look for the rest of the process's life: the sparklines go on without a browser."""
        while True:
            self.look()
            self._wake.wait(WATCHED_SECONDS if self._bells else IDLE_SECONDS)
            time.sleep(TOGETHER_SECONDS)
            self._wake.clear()


def as_json(sections: Sections) -> str:
    """Return sections as one JSON object."""
    return f"{{{', '.join(f'{json.dumps(name)}: {text}' for name, text in sections.items())}}}"


async def events(feed: Feed, gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
    """Yield server-sent events: first the whole state, then the sections that changed.

    Each look sends `at` at least, so a browser knows that the stream lives. The stream ends when
    the browser is `gone`, or after STREAM_SECONDS.
    """
    sent: Sections = {}
    end = time.monotonic() + STREAM_SECONDS
    yield "retry: 500\n\n"
    with feed.subscribe() as bell:
        while time.monotonic() < end and not await gone():
            bell.clear()
            sections = feed.sections
            if changed := {name: text for name, text in sections.items() if sent.get(name) != text}:
                yield f"data: {as_json(changed)}\n\n"
                sent = sections
            with suppress(TimeoutError):
                await asyncio.wait_for(bell.wait(), WATCHED_SECONDS)
