"""An HTTP service that takes each record as a POST: a sink outside of the transaction, so a record may be sent twice, with the same key.

Replays are told by high-water marks, as for tables that add up; only a crash between a POST and its batch's commit sends records again. The
header `Idempotency-Key` is the record's name for ever, so a service that knows it takes each record once.
"""

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
from psycopg import sql

from pipeline.declare import DeclarationError
from pipeline.sinks.marks import Marks, first_seen
from pipeline.sinks.sink import Rows, Sink, SinkAwayError, Written

LANES = 8
"""The most POSTs at a time; records of one path follow each other."""
ANSWER_SECONDS = 10.0
GIVE_UP_SECONDS = 20.0
"""After so long without an answer that lasts, the batch is given back and tried again from its beginning."""
WAITS = (0.1, 5.0)
"""Between two tries, first and at most. Unit: seconds."""
LATER = frozenset({408, 409, 425, 429})
"""Answers of the 400s that mean: not now."""


@dataclass(frozen=True)
class Refusal:
    """A record that the service will not take however often it is sent."""

    row: int
    status: int
    answer: str


@dataclass(frozen=True)
class Post(Sink):
    """Sends each record once, in the order of its path; what is refused is kept in the table `<name>_refused`."""

    url: str
    token_file: str | None = None
    """A file with the bearer token."""

    def __post_init__(self) -> None:
        """Refuse what nothing can be sent to."""
        if not self.url.startswith(("http://", "https://")):
            message = f'sink "{self.name}": {self.url!r} is no http(s) address'
            raise DeclarationError(message)

    def statements(self) -> list[sql.Composed]:
        """Make the table of what is refused."""
        return [
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (origin text PRIMARY KEY, record jsonb NOT NULL, status int NOT NULL, answer text NOT NULL,"
                " batch bigint NOT NULL, refused_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            ).format(self._refused)
        ]

    def write(self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks) -> Written:
        """Send what is new."""
        new = first_seen(marks, rows.paths, rows.origins)
        lanes: dict[str, list[int]] = {}
        for row in new:
            lanes.setdefault(rows.paths[row], []).append(row)
        give_up = time.monotonic() + GIVE_UP_SECONDS
        with httpx.Client(timeout=ANSWER_SECONDS, headers=self._headers()) as client, ThreadPoolExecutor(LANES) as pool:
            sent = pool.map(lambda lane: self._send(client, rows, lane, give_up), lanes.values())
            refusals = [refusal for lane in sent for refusal in lane]
        cursor.executemany(
            sql.SQL("INSERT INTO {} (origin, record, status, answer, batch) VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING").format(
                self._refused
            ),
            [(rows.origins[each.row], self._body(rows, each.row), each.status, each.answer, batch) for each in refusals],
        )
        return Written(len(new) - len(refusals), len(refusals))

    @property
    def _refused(self) -> sql.Identifier:
        return sql.Identifier(f"{self.name}_refused")

    def _headers(self) -> dict[str, str]:
        token = {} if self.token_file is None else {"Authorization": f"Bearer {Path(self.token_file).read_text().strip()}"}
        return {"Content-Type": "application/json", **token}

    def _body(self, rows: Rows, row: int) -> str:
        return json.dumps({name: rows.columns[name][row] for name in self.columns}, default=str)

    def _send(self, client: httpx.Client, rows: Rows, lane: Sequence[int], give_up: float) -> list[Refusal]:
        return [refusal for row in lane if (refusal := self._post(client, rows, row, give_up)) is not None]

    def _post(self, client: httpx.Client, rows: Rows, row: int, give_up: float) -> Refusal | None:
        wait, most = WAITS
        while True:
            try:
                answer = client.post(
                    self.url, content=self._body(rows, row), headers={"Idempotency-Key": f"{self.name}:{rows.origins[row]}"}
                )
                if answer.is_success:
                    return None
                if answer.status_code not in LATER and not answer.is_server_error:
                    return Refusal(row, answer.status_code, answer.text[:1000])
                said, wait = f"it answers {answer.status_code}", _asked_for(answer, wait)
            except httpx.TransportError as error:
                said = f"{type(error).__name__}: {error}"
            if time.monotonic() + wait > give_up:
                message = f"{self.url} takes no records of {self.name}: {said}"
                raise SinkAwayError(message)
            time.sleep(wait)
            wait = min(2 * wait, most)


def _asked_for(answer: httpx.Response, wait: float) -> float:
    """Wait as long as the service asks for, when it does."""
    asked = answer.headers.get("Retry-After", "")
    return max(wait, float(asked)) if asked.isdigit() else wait
