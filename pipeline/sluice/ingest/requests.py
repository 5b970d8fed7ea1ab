"""What a request to `sluice ingest http` contains, and which answers were given. Pure."""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import Field

from sluice.ingest.source import KEY_BYTES, RECORD_BYTES, key_of
from sluice_ops.model.resources import Frozen

LINES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})
ONE = "application/json"
IDEMPOTENCY_KEY_LENGTH = 255
KEEP_SECONDS = 86_400.0
"""For this long, a repeated request with the same key gets the same answer."""
PART = "key/"
"""The parts of the source's memory that hold answers."""
MOST_SECONDS = 60
"""The longest time after which a client is told to try again."""


class RefusedError(Exception):
    """The request is wrong, or cannot be served now."""

    def __init__(self, status: int, why: str, *, line: int | None = None, after: int | None = None) -> None:
        super().__init__(why)
        self.status, self.line, self.after = status, line, after
        """The HTTP status; the line of the bad record; when to try again, in seconds."""


class Sent(NamedTuple):
    """One record of a request."""

    key: bytes | None
    value: bytes


def parse(body: bytes, content_type: str, field: str | None) -> list[Sent]:
    """Return the records of a request's body; RefusedError if one of them is bad."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in LINES | {ONE}:
        message = f"Content-Type {kind!r}: send application/x-ndjson, or application/json for one record"
        raise RefusedError(415, message)
    lines = [body] if kind == ONE else body.split(b"\n")
    records = [
        _record(line.strip(), number, field) for number, line in enumerate(lines, start=1) if line.strip()
    ]
    if not records:
        message = "the request has no record"
        raise RefusedError(400, message)
    return records


def _record(text: bytes, number: int, field: str | None) -> Sent:
    if len(text) > RECORD_BYTES:
        raise RefusedError(400, f"the record has {len(text)} bytes; the limit is {RECORD_BYTES}", line=number)
    try:
        record = json.loads(text.decode(), parse_constant=_no_constant)
    except RecursionError:
        raise RefusedError(400, "the record is nested too deeply", line=number) from None
    except ValueError as error:
        raise RefusedError(400, f"the record is no JSON in UTF-8: {error}", line=number) from None
    if not isinstance(record, dict):
        message = f"the record is a JSON {type(record).__name__}; send an object, and several as NDJSON"
        raise RefusedError(400, message, line=number)
    key = key_of(record, field)
    if key is not None and len(key) > KEY_BYTES:
        raise RefusedError(400, f"{field} has {len(key)} bytes; the limit is {KEY_BYTES}", line=number)
    return Sent(key, text)


def _no_constant(name: str) -> object:
    message = f"{name} is not a JSON number"
    raise ValueError(message)


class Answer(Frozen):
    """The answer to a request whose records are in the stream."""

    body: str
    """The digest of the request's body."""
    records: int = Field(ge=1)
    at: float
    """Epoch seconds."""


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def key_digest(header: str | None) -> str | None:
    """Return the digest of an idempotency key; None without one. RefusedError if it is unusable."""
    if header is None:
        return None
    if not header or len(header) > IDEMPOTENCY_KEY_LENGTH or not header.isascii() or not header.isprintable():
        message = f"Idempotency-Key must have 1 to {IDEMPOTENCY_KEY_LENGTH} visible ASCII characters"
        raise RefusedError(400, message)
    return digest(header.encode())


class Answers:
    """The answers to requests with a key."""

    def __init__(self, memory: Mapping[str, bytes]) -> None:
        """Read the answers from a source's memory."""
        answers = {
            part.removeprefix(PART): Answer.model_validate_json(value, extra="allow")
            for part, value in memory.items()
            if part.startswith(PART)
        }
        self._answers = dict(sorted(answers.items(), key=lambda item: item[1].at))

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, key: str, body: str, now: float) -> Answer | None:
        """Return the answer to the request; None if it is new.

        RefusedError if the key came with another body.
        """
        answer = self._answers.get(key)
        if answer is None or now - answer.at > KEEP_SECONDS:
            return None
        if answer.body != body:
            raise another_body()
        return answer

    def changes(self, new: Mapping[str, Answer], now: float) -> dict[str, bytes | None]:
        """Return what to remember with new answers, and which old ones to forget."""
        expired = []
        for key, answer in self._answers.items():
            if now - answer.at <= KEEP_SECONDS:
                break
            expired.append(key)
        added = {f"{PART}{key}": answer.model_dump_json().encode() for key, answer in new.items()}
        return {f"{PART}{key}": None for key in expired} | added

    def remember(self, new: Mapping[str, Answer], now: float) -> None:
        """Take the changes as written."""
        for part, value in self.changes(new, now).items():
            if value is None:
                del self._answers[part.removeprefix(PART)]
        for key, answer in new.items():
            self._answers.pop(key, None)  # an expired one
            self._answers[key] = answer


def another_body() -> RefusedError:
    """Return the refusal of a key that came with another body."""
    return RefusedError(422, "this Idempotency-Key was used with another body; use a new key")


class Meter:
    """Lets in as many records as the throttled tier of the stream takes (decision 64)."""

    def __init__(self) -> None:
        """Begin without a limit."""
        self.admitted: float | None = None
        """Records each second; None: no limit."""
        self._owed, self._at = 0.0, 0.0

    def refuse(self, now: float) -> int | None:
        """Return after how many seconds to try again; None if a request may come in now."""
        if self.admitted is None:
            self._owed = 0.0
            return None
        self._owed = max(0.0, self._owed - self.admitted * max(0.0, now - self._at))
        self._at = now
        if not self.admitted:
            return MOST_SECONDS // 6
        if not self._owed:
            return None
        return min(MOST_SECONDS, math.ceil(self._owed / self.admitted))

    def take(self, records: int) -> None:
        """Count the records of a request that came in. The next one waits until they are due."""
        self._owed += records
