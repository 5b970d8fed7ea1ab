"""An HTTP service that takes each record as a POST: a sink outside of the transaction, so a record may be sent twice, with the same key.

Replays are told by high-water marks, as for tables that add up; only a crash between a POST and its batch's commit sends records again. The
header `Idempotency-Key` is the record's name for ever, so a service that knows it takes each record once. A tier that delivers at most once
sends nothing again that the service may have taken (decision record 0027).
"""

import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import psycopg
import structlog
from psycopg import sql

from sluice.api.declarations import DeclarationError
from sluice.api.marks import Marks, first_seen
from sluice.api.sink import Rows, Sink, SinkAwayError, Written
from sluice.sinks.row_json import as_json

log = structlog.get_logger()

LANES = 8
"""The most POSTs at a time; records of one path follow each other."""
ANSWER_SECONDS = 10.0
GIVE_UP_SECONDS = 20.0
"""After so long without an answer that lasts, the batch is given back and tried again from its beginning."""
WAITS = (0.1, 5.0)
"""Between two tries, first and at most. Unit: seconds."""
MOST_SECONDS = 3600.0
"""So long a service is left alone at most, when it asks for it: it may have meant a time of day, or nothing at all."""
BUSY = frozenset({425, 429})
"""Answers that mean: not now, and this was not taken. So does 503, when it says for how long (`Retry-After`)."""
ASTRAY = frozenset({*range(300, 400), 401, 403, 404, 405, 407, 421, 426})
"""Answers that no record is to blame for (the address has moved, the token has expired): not now, and this was not taken.

To wait is told, and loses nothing; to refuse would empty the stream. A sink whose service means the record by one says so (`refuses`)."""
UNSURE = frozenset({408, 409})
"""Answers of the 400s that mean: not now; of those, and of the 500s, nobody knows whether the record was taken."""
UNSENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.LocalProtocolError,
    httpx.UnsupportedProtocol,
)
"""Errors before anything was sent."""
TOKEN = re.compile(rb"[!-~]+")
"""What a header can hold as one word."""

NEVER_REFUSES = BUSY | {401, 407, 408}
"""Answers of the 300s and 400s that are about who asks, or when, and so never about a record."""


class Fate(Enum):
    """What became of a POST."""

    TAKEN = "taken"
    REFUSED = "refused"
    """It will not be taken however often it is sent."""
    NOT_YET = "not yet"
    """It was not taken, and may be another time."""
    UNKNOWN = "unknown"
    """It may have been taken."""


@dataclass(frozen=True)
class Patience:
    """How long an answer that lasts is waited for."""

    halt: Event
    """Set when somebody waits for the tier to hold."""
    until: float = math.inf
    """By the monotonic clock."""

    def wait(self, seconds: float) -> bool:
        """Wait, and tell whether there was time for it."""
        return time.monotonic() + seconds <= self.until and not self.halt.wait(seconds)


OPEN = frozenset({Fate.NOT_YET, Fate.UNKNOWN})


@dataclass(frozen=True)
class Answer:
    """A record's POST, and what became of it."""

    row: int
    fate: Fate
    said: str
    status: int = 0
    wait: float = 0.0
    """So long the service asks to be left alone. Unit: seconds."""


@dataclass(frozen=True)
class Post(Sink):
    """Sends each record once, in the order of its path; what is refused is kept in the table `<name>_refused`."""

    url: str
    token_file: str | None = None
    """A file with the bearer token; it is read for each batch."""
    refuses: frozenset[int] = frozenset()
    """Answers by which this service means the record itself, though most others do not: 404 where no such user is known, 409 where it has
    another one of that name. Such a record is kept aside, and the tier goes on."""

    def __post_init__(self) -> None:
        """Refuse what nothing can be sent to, and answers that say nothing of a record."""
        if not _is_address(self.url):
            message = f'sink "{self.name}": {self.url!r} is no http(s) address'
            raise DeclarationError(message)
        wrong = sorted(
            status for status in self.refuses if status in NEVER_REFUSES or status not in range(300, 500)
        )
        if wrong:
            others = ", ".join(map(str, sorted(NEVER_REFUSES)))
            message = (
                f'sink "{self.name}": refuses has {", ".join(map(str, wrong))}, by which no service means a record; '
                f"name answers of the 300s and 400s, none of {others}"
            )
            raise DeclarationError(message)

    def statements(self) -> list[sql.Composed]:
        """Make the table of what is refused."""
        return [
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (origin text PRIMARY KEY, record jsonb NOT NULL, status int NOT NULL, answer text NOT NULL,"
                " batch bigint NOT NULL, refused_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            ).format(self._refused)
        ]

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Send what is new, and again until it is taken or refused."""
        new = first_seen(marks, rows.paths, rows.origins)
        patience = Patience(halt, time.monotonic() + GIVE_UP_SECONDS)
        failed: list[Answer] = []

        def send(client: httpx.Client, row: int) -> Answer:
            if halt.is_set() or failed:
                return Answer(row, Fate.NOT_YET, "it was not sent: the tier was to hold")
            answer = self._send(client, rows, row, patience, OPEN)
            if answer.fate in OPEN:
                failed.append(answer)
            return answer

        with self._client() as client:
            answers = _by_lanes(rows, new, partial(send, client))
        if lacking := failed or [answer for answer in answers if answer.fate in OPEN]:
            raise self._away(max(lacking, key=lambda answer: answer.wait))
        refused = self._keep(cursor, rows, batch, answers)
        return Written(len(new) - refused, refused)

    def write_at_most_once(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Send what is new; the first record alone, so that nothing else is at risk while the service is away.

        Once that one was sent there is no way back: what is not taken for certain is tried again for as long as the tier may go on.
        """
        new = first_seen(marks, rows.paths, rows.origins)
        unsent = frozenset({Fate.NOT_YET})

        def send(client: httpx.Client, row: int) -> Answer:
            if halt.is_set():
                return Answer(row, Fate.NOT_YET, "it was not sent any more: the tier was to hold")
            return self._send(client, rows, row, Patience(halt), unsent)

        with self._client() as client:
            first = Patience(halt, time.monotonic() + GIVE_UP_SECONDS)
            answers = [self._send(client, rows, row, first, unsent) for row in new[:1]]
            if answers and answers[0].fate is Fate.NOT_YET:
                raise self._away(answers[0])
            answers += _by_lanes(rows, new[1:], partial(send, client))
        lost = [answer for answer in answers if answer.fate in OPEN]
        if lost:
            log.warning(
                "records may be lost: they are sent at most once",
                sink=self.name,
                records=len(lost),
                answer=lost[0].said,
            )
        refused = self._keep(cursor, rows, batch, answers)
        return Written(len(new) - refused - len(lost), refused, len(lost))

    @property
    def _refused(self) -> sql.Identifier:
        return sql.Identifier(f"{self.name}_refused")

    def _client(self) -> httpx.Client:
        token = (
            {}
            if self.token_file is None
            else {"Authorization": f"Bearer {self._token(Path(self.token_file))}"}
        )
        return httpx.Client(timeout=ANSWER_SECONDS, headers={"Content-Type": "application/json", **token})

    def _token(self, file: Path) -> str:
        """Read it; who writes it anew may not have done so yet, and nothing is sent before."""
        try:
            token = file.read_bytes().strip()
        except OSError as error:
            what = f"cannot be read ({error.strerror})"
        else:
            if TOKEN.fullmatch(token):
                return token.decode()
            what = "holds more than a token" if token else "is empty"
        message = f"nothing is sent to {self.url}: {file}, where the token of {self.name} is to be, {what}"
        raise SinkAwayError(message)

    def _record(self, rows: Rows, row: int) -> dict[str, Any]:
        return {name: rows.columns[name][row] for name in self.columns}

    def _send(
        self, client: httpx.Client, rows: Rows, row: int, patience: Patience, again: frozenset[Fate]
    ) -> Answer:
        """Send a record until what becomes of it is none of those, or it may be waited no longer."""
        wait, most = WAITS
        while True:
            answer = self._post(client, rows, row)
            wait = max(wait, answer.wait)
            if answer.fate not in again or not patience.wait(wait):
                return answer
            if wait < most <= 2 * wait:
                log.warning(
                    "a record is not taken, and is tried again",
                    sink=self.name,
                    record=rows.origins[row],
                    answer=answer.said,
                )
            wait = min(2 * wait, most)

    def _post(self, client: httpx.Client, rows: Rows, row: int) -> Answer:
        key = {"Idempotency-Key": f"{self.name}:{rows.origins[row]}"}
        try:
            answer = client.post(self.url, content=as_json(self._record(rows, row)), headers=key)
        except httpx.RequestError as error:  # an answer that cannot be decoded is one, too
            return Answer(
                row,
                Fate.NOT_YET if isinstance(error, UNSENT) else Fate.UNKNOWN,
                f"{type(error).__name__}: {error}",
            )
        fate = _fate(answer, self.refuses)
        said = answer.text[:1000].replace("\0", "") if fate is Fate.REFUSED else _why(answer.status_code)
        return Answer(
            row, fate, said, answer.status_code, asked_for(answer.headers.get("Retry-After", ""), time.time())
        )

    def _away(self, answer: Answer) -> SinkAwayError:
        """Give the batch back: this was not taken."""
        return SinkAwayError(f"{self.url} takes no records of {self.name}: {answer.said}", answer.wait)

    def _keep(self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, answers: Iterable[Answer]) -> int:
        """Keep what was refused, with the answers; return how many they are."""
        refusals = [answer for answer in answers if answer.fate is Fate.REFUSED]
        cursor.executemany(
            sql.SQL(
                "INSERT INTO {} (origin, record, status, answer, batch) VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
            ).format(self._refused),
            [
                (
                    rows.origins[each.row],
                    as_json(self._record(rows, each.row), nul=""),
                    each.status,
                    each.said,
                    batch,
                )
                for each in refusals
            ],
        )
        return len(refusals)


def _is_address(url: str) -> bool:
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.host)


def _by_lanes(rows: Rows, new: Sequence[int], send: Callable[[int], Answer]) -> list[Answer]:
    """Send some rows, many at a time, those of one path after each other."""
    lanes: dict[str, list[int]] = {}
    for row in new:
        lanes.setdefault(rows.paths[row], []).append(row)
    with ThreadPoolExecutor(LANES) as pool:
        return [
            answer
            for lane in pool.map(lambda lane: [send(row) for row in lane], lanes.values())
            for answer in lane
        ]


def _fate(answer: httpx.Response, refuses: frozenset[int]) -> Fate:
    if answer.is_success:
        return Fate.TAKEN
    status = answer.status_code
    if status in refuses:
        return Fate.REFUSED
    if status in BUSY | ASTRAY or (
        status == httpx.codes.SERVICE_UNAVAILABLE and "Retry-After" in answer.headers
    ):
        return Fate.NOT_YET
    return Fate.UNKNOWN if status in UNSURE or answer.is_server_error else Fate.REFUSED


def _why(status: int) -> str:
    """Say what a service answers that has not taken a record, and what a person can do about it."""
    if status not in ASTRAY:
        return f"it answers {status}"
    mend = f"it answers {status}, for which no record is to blame: mend the sink's address or its token"
    return (
        mend
        if status in NEVER_REFUSES
        else f"{mend}, or, if it means the record, add {status} to the sink's `refuses`"
    )


def asked_for(said: str, now: float) -> float:
    """Return for how long a service asks to be left alone by its `Retry-After`, at most an hour; 0 when it does not. Pure."""
    try:
        seconds = float(said) if said.isdecimal() else parsedate_to_datetime(said).timestamp() - now
    except (ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), MOST_SECONDS)
