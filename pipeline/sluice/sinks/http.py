"""A sink that sends each record to an HTTP service as a POST.

The service is outside the transaction. A crash between a POST and the commit of its batch sends the
record again, with the same header `Idempotency-Key`. A service that honours the key takes each
record once. High-water marks tell replays from new records, as for tables of the kind `Totals`.

A tier that delivers at most once never sends a record again that the service may have taken
(decision 27).
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
"""The most POSTs at a time. Records of one path are sent one after the other."""
ANSWER_SECONDS = 10.0
GIVE_UP_SECONDS = 20.0
"""After this time without a final response, the driver retries the batch from its beginning."""
RETRY_WAITS = (0.1, 5.0)
"""The first and the longest wait between two tries. Unit: seconds."""
MAX_RETRY_AFTER_SECONDS = 3600.0
"""The longest `Retry-After` that the sink obeys. A longer one may be a mistake of the service."""
BUSY = frozenset({425, 429})
"""Responses for "try later", with which the record was not taken.

503 counts as one if it has the header `Retry-After`.
"""
NOT_THE_RECORDS_FAULT = frozenset({*range(300, 400), 401, 403, 404, 405, 407, 421, 426})
"""Responses that are not the record's fault, such as a moved address or an expired token.

The record was not taken. The sink retries until the service recovers. A wait is reported and loses
nothing; a refusal would put the whole stream into the table of refused records. If a service means
the record with such a response, the sink lists the response in `refuses`.
"""
UNSURE = frozenset({408, 409})
"""Responses of the 400s for "try later". For these and the 500s, the record may have been taken."""
UNSENT_ERRORS = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.LocalProtocolError,
    httpx.UnsupportedProtocol,
)
"""Errors before anything was sent."""
HEADER_WORD = re.compile(rb"[!-~]+")
"""The characters that a header can hold as one word."""

NEVER_REFUSES = BUSY | {401, 407, 408}
"""Responses of the 300s and 400s that are about the client or the time, never about the record."""


class Outcome(Enum):
    """The result of a POST."""

    TAKEN = "taken"
    REFUSED = "refused"
    """The service will never take the record."""
    NOT_YET = "not yet"
    """The record was not taken, but a retry may succeed."""
    UNKNOWN = "unknown"
    """The record may have been taken."""


@dataclass(frozen=True)
class RetryLimit:
    """How long the sink retries a record."""

    halt: Event
    """Set when an operation waits for the tier to pause or stop."""
    until: float = math.inf
    """By the monotonic clock. Unit: seconds."""

    def wait(self, seconds: float) -> bool:
        """Wait, and tell whether a retry is allowed afterwards."""
        return time.monotonic() + seconds <= self.until and not self.halt.wait(seconds)


UNDECIDED = frozenset({Outcome.NOT_YET, Outcome.UNKNOWN})


@dataclass(frozen=True)
class Answer:
    """The result of a record's POST."""

    row: int
    outcome: Outcome
    text: str
    status: int = 0
    wait: float = 0.0
    """How long the service asks the sink to wait. Unit: seconds."""


@dataclass(frozen=True)
class Post(Sink):
    """Sends each record once, in the order of its path.

    The table `<name>_refused` keeps refused ones.
    """

    url: str
    token_file: str | None = None
    """A file with the bearer token; the sink reads the file for each batch."""
    refuses: frozenset[int] = frozenset()
    """Responses with which this service refuses the record itself, although most services do not.

    Examples: 404 if no such user is known; 409 if the service has another user of that name. The
    sink keeps such a record in the table `<name>_refused`, and the tier continues.
    """

    def __post_init__(self) -> None:
        """Raise DeclarationError for a bad `url`, or a status in `refuses` that refuses nothing."""
        if not _is_address(self.url):
            message = f'sink "{self.name}": {self.url!r} is no http(s) address; correct the sink\'s `url`'
            raise DeclarationError(message)
        not_refusals = sorted(
            status for status in self.refuses if status in NEVER_REFUSES or status not in range(300, 500)
        )
        if not_refusals:
            never = ", ".join(map(str, sorted(NEVER_REFUSES)))
            message = (
                f'sink "{self.name}": `refuses` has {", ".join(map(str, not_refusals))}, which no service '
                f"uses to refuse a record; name statuses of the 300s and 400s, but none of {never}"
            )
            raise DeclarationError(message)

    @property
    def tables(self) -> Sequence[str]:
        return (f"{self.name}_refused",)

    def statements(self) -> list[sql.Composed]:
        """Return the statement that creates the table of refused records."""
        return [
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (origin text PRIMARY KEY, record jsonb NOT NULL,"
                " status int NOT NULL, answer text NOT NULL,"
                " batch bigint NOT NULL, refused_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            ).format(self._refused)
        ]

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Send each new record, with retries until the record is taken or refused."""
        new = first_seen(marks, rows.paths, rows.origins)
        limit = RetryLimit(halt, time.monotonic() + GIVE_UP_SECONDS)
        failed: list[Answer] = []

        def send(client: httpx.Client, row: int) -> Answer:
            if halt.is_set() or failed:
                return Answer(row, Outcome.NOT_YET, "the record was not sent, because the tier must hold")
            answer = self._send(client, rows, row, limit, UNDECIDED)
            if answer.outcome in UNDECIDED:
                failed.append(answer)
            return answer

        with self._client() as client:
            answers = _by_lanes(rows, new, partial(send, client))
        if undecided := failed or [answer for answer in answers if answer.outcome in UNDECIDED]:
            raise self._away(max(undecided, key=lambda answer: answer.wait))
        refused = self._keep(cursor, rows, batch, answers)
        return Written(len(new) - refused, refused)

    def write_at_most_once(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Send each new record at most once; the first record alone.

        So only one record is at risk while the service is unavailable. Once the first record was
        sent, the batch cannot be given back. A record that was certainly not taken is retried until
        the tier must hold. The rest is then still sent, until the service does not take a record,
        or the batch has taken GIVE_UP_SECONDS.
        """
        new = first_seen(marks, rows.paths, rows.origins)
        unsent = frozenset({Outcome.NOT_YET})
        end, troubled = time.monotonic() + GIVE_UP_SECONDS, Event()

        def send(client: httpx.Client, row: int) -> Answer:
            if halt.is_set() and (troubled.is_set() or time.monotonic() > end):
                return Answer(row, Outcome.NOT_YET, "the record was not sent, because the tier must hold")
            answer = self._send(client, rows, row, RetryLimit(halt), unsent)
            if halt.is_set() and answer.outcome in UNDECIDED:
                troubled.set()
            return answer

        with self._client() as client:
            first = RetryLimit(halt, time.monotonic() + GIVE_UP_SECONDS)
            answers = [self._send(client, rows, row, first, unsent) for row in new[:1]]
            if answers and answers[0].outcome is Outcome.NOT_YET:
                raise self._away(answers[0])
            answers += _by_lanes(rows, new[1:], partial(send, client))
        lost = [answer for answer in answers if answer.outcome in UNDECIDED]
        if lost:
            log.warning(
                "records may be lost: the service did not confirm them, and this sink sends at most once",
                sink=self.name,
                records=len(lost),
                answer=lost[0].text,
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
        """Return the token. SinkAwayError if the file has none: a rotation may still be writing it.

        Nothing is sent without the token.
        """
        try:
            token = file.read_bytes().strip()
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
        else:
            if HEADER_WORD.fullmatch(token):
                return token.decode()
            problem = "holds more than a token" if token else "is empty"
        message = (
            f"nothing is sent to {self.url}: the token file {file} of sink {self.name} {problem}; "
            "write the bearer token into this file"
        )
        raise SinkAwayError(message)

    def _record(self, rows: Rows, row: int) -> dict[str, Any]:
        return {name: rows.columns[name][row] for name in self.columns}

    def _send(
        self, client: httpx.Client, rows: Rows, row: int, limit: RetryLimit, retried: frozenset[Outcome]
    ) -> Answer:
        """Send a record; retry while its outcome is in `retried` and the limit allows a wait."""
        wait, max_wait = RETRY_WAITS
        while True:
            answer = self._post(client, rows, row)
            wait = max(wait, answer.wait)
            if answer.outcome not in retried or not limit.wait(wait):
                return answer
            if wait < max_wait <= 2 * wait:
                log.warning(
                    "the service does not take a record; the record is retried",
                    sink=self.name,
                    record=rows.origins[row],
                    answer=answer.text,
                )
            wait = min(2 * wait, max_wait)

    def _post(self, client: httpx.Client, rows: Rows, row: int) -> Answer:
        key = {"Idempotency-Key": f"{self.name}:{rows.origins[row]}"}
        try:
            response = client.post(self.url, content=as_json(self._record(rows, row)), headers=key)
        except httpx.RequestError as error:  # also if the response cannot be decoded
            return Answer(
                row,
                Outcome.NOT_YET if isinstance(error, UNSENT_ERRORS) else Outcome.UNKNOWN,
                f"{type(error).__name__}: {error}",
            )
        outcome = _outcome(response, self.refuses)
        text = (
            response.text[:1000].replace("\0", "")
            if outcome is Outcome.REFUSED
            else _explained(response.status_code)
        )
        wait = retry_after_seconds(response.headers.get("Retry-After", ""), time.time())
        return Answer(row, outcome, text, response.status_code, wait)

    def _away(self, answer: Answer) -> SinkAwayError:
        """Return the error that gives the batch back."""
        return SinkAwayError(f"{self.url} takes no records of sink {self.name}: {answer.text}", answer.wait)

    def _keep(self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, answers: Iterable[Answer]) -> int:
        """Store the refused records with the responses, and return their number."""
        refusals = [answer for answer in answers if answer.outcome is Outcome.REFUSED]
        cursor.executemany(
            sql.SQL(
                "INSERT INTO {} (origin, record, status, answer, batch) VALUES (%s, %s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING"
            ).format(self._refused),
            [
                (
                    rows.origins[refusal.row],
                    as_json(self._record(rows, refusal.row), nul=""),
                    refusal.status,
                    refusal.text,
                    batch,
                )
                for refusal in refusals
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
    """Send the given rows, up to LANES at a time, and rows of one path one after the other."""
    lanes: dict[str, list[int]] = {}
    for row in new:
        lanes.setdefault(rows.paths[row], []).append(row)
    with ThreadPoolExecutor(LANES) as pool:
        return [
            answer
            for lane in pool.map(lambda lane: [send(row) for row in lane], lanes.values())
            for answer in lane
        ]


def _outcome(response: httpx.Response, refuses: frozenset[int]) -> Outcome:
    if response.is_success:
        return Outcome.TAKEN
    status = response.status_code
    if status in refuses:
        return Outcome.REFUSED
    if status in BUSY | NOT_THE_RECORDS_FAULT or (
        status == httpx.codes.SERVICE_UNAVAILABLE and "Retry-After" in response.headers
    ):
        return Outcome.NOT_YET
    return Outcome.UNKNOWN if status in UNSURE or response.is_server_error else Outcome.REFUSED


def _explained(status: int) -> str:
    """Return the text of a response that did not take a record, and the next step for a person."""
    if status not in NOT_THE_RECORDS_FAULT:
        return f"the service answers {status}"
    next_step = (
        f"the service answers {status}, which is not the record's fault; "
        "correct the sink's `url` or its token"
    )
    return (
        next_step
        if status in NEVER_REFUSES
        else f"{next_step}; if the service means the record, add {status} to the sink's `refuses`"
    )


def retry_after_seconds(header: str, now: float) -> float:
    """Return the wait that a `Retry-After` header asks for, at most one hour. Pure.

    0 without a valid header. Unit: seconds.
    """
    try:
        seconds = float(header) if header.isdecimal() else parsedate_to_datetime(header).timestamp() - now
    except (ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)
