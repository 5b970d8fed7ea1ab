"""The HTTP sink against a real server: each record is sent once and in order, retried if needed,
and kept aside when refused.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import httpx
import psycopg
import pytest

from sluice.api.declarations import DeclarationError
from sluice.api.marks import Marks
from sluice.api.sink import Rows, SinkAwayError, Written
from sluice.sinks import http
from sluice.sinks.http import Post
from sluice.sinks.row_json import as_json
from tests.http_service import Quiet, serving

CLOSED = 0
"""In the place of a status: the server closes the connection without an answer."""


class Service(ThreadingHTTPServer):
    """A server that answers as the test sets, and records each request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, dict[str, Any], str | None]] = []
        self.answers: dict[str, list[int]] = {}
        self.retry_after: str | None = None
        """The header `Retry-After` of each answer other than 200."""
        self.reason = b"reason"
        self.seconds = 0.0
        """Seconds that each answer takes."""
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hits"


class Handler(Quiet, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        with self.server.lock:
            self.server.requests.append((key, body, self.headers["Authorization"]))
            answers = self.server.answers.get(key, [])
            status = answers.pop(0) if answers else 200
        time.sleep(self.server.seconds)
        if status == CLOSED:
            self.close_connection = True
            return
        reply = self.server.reason if status != 200 else b""
        self.send_response(status)
        if status != 200 and self.server.retry_after is not None:
            self.send_header("Retry-After", self.server.retry_after)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(Service()) as server:
        yield server


class Cursor:
    """A cursor that keeps the rows written into PostgreSQL."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def executemany(self, _statement: object, rows: list[tuple[Any, ...]]) -> None:
        self.rows += rows


def rows(*origins: str) -> Rows:
    return Rows(
        {"n": [int(origin.split(":")[1]) for origin in origins]},
        origins,
        [origin.split(":")[0] for origin in origins],
    )


def write(
    sink: Post, batch: Rows, marks: Marks | None = None, halt: threading.Event | None = None
) -> tuple[Written, list[tuple[Any, ...]]]:
    cursor = Cursor()
    written = sink.write(
        cast("psycopg.Cursor[Any]", cursor),
        batch,
        7,
        {} if marks is None else marks,
        halt or threading.Event(),
    )
    return written, cursor.rows


def test_each_record_is_sent_once_in_order_under_its_own_key(service: Service) -> None:
    marks: Marks = {}
    sink = Post("crm", {"n": "bigint"}, service.url)
    assert write(sink, rows("0:1", "1:1", "0:2", "1:2", "0:3"), marks) == (Written(5), [])
    assert write(sink, rows("0:3", "0:4"), marks) == (Written(1), []), "a replay is not sent again"
    for path in "01":
        assert [key for key, _, _ in service.requests if key.startswith(f"crm:{path}:")] == [
            f"crm:{path}:{number}" for number in ((1, 2, 3, 4) if path == "0" else (1, 2))
        ]
    assert all(body == {"n": int(key.split(":")[2])} for key, body, _ in service.requests)


def test_a_record_that_is_not_accepted_now_is_retried_with_its_key(service: Service) -> None:
    service.answers = {"crm:0:1": [503, 429]}
    assert write(Post("crm", {"n": "bigint"}, service.url), rows("0:1", "0:2")) == (Written(2), [])
    assert [key for key, _, _ in service.requests] == ["crm:0:1", "crm:0:1", "crm:0:1", "crm:0:2"]


def test_a_refused_record_is_kept_with_the_answer(service: Service) -> None:
    service.answers = {"crm:0:2": [422]}
    written, refused_rows = write(Post("crm", {"n": "bigint"}, service.url), rows("0:1", "0:2", "0:3"))
    assert written == Written(2, refused=1)
    assert refused_rows == [("0:2", '{"n": 2}', 422, "reason", 7)]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 401, 403, 404, 405, 407, 421, 426])
def test_a_wrong_token_or_address_refuses_no_record(
    service: Service, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.3)
    service.answers = {"crm:0:1": [status] * 100}
    with pytest.raises(
        SinkAwayError,
        match=f"takes no records of sink crm: the service answers {status}.* correct the sink's `url` or "
        "its token",
    ):
        write(Post("crm", {"n": "bigint"}, service.url), rows("0:1"))


@pytest.mark.parametrize("status", [403, 404, 409])
def test_a_status_in_refuses_refuses_the_record(
    service: Service, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.3)
    service.answers = {"crm:0:2": [status]}
    sink = Post("crm", {"n": "bigint"}, service.url, refuses=frozenset({status}))
    assert write(sink, rows("0:1", "0:2", "0:3")) == (
        Written(2, refused=1),
        [("0:2", '{"n": 2}', status, "reason", 7)],
    )


def test_a_waiting_sink_names_the_setting_that_refuses_the_record(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.3)
    service.answers = {"crm:0:1": [404] * 100}
    with pytest.raises(
        SinkAwayError, match="if the service means the record, add 404 to the sink's `refuses`"
    ):
        write(Post("crm", {"n": "bigint"}, service.url), rows("0:1"))


@pytest.mark.parametrize("status", [200, 401, 407, 408, 425, 429, 500])
def test_a_status_that_is_never_about_a_record_cannot_refuse_one(status: int) -> None:
    with pytest.raises(
        DeclarationError,
        match=f'sink "crm": `refuses` has {status}, which no service uses to refuse a record; name statuses',
    ):
        Post("crm", {}, "http://crm.local", refuses=frozenset({status, 404}))


def test_after_retry_after_the_sink_waits_and_sends_no_more(service: Service) -> None:
    service.retry_after = "60"
    service.answers = {f"crm:{path}:1": [429] * 100 for path in range(16)}
    begun = time.monotonic()
    with pytest.raises(SinkAwayError, match="the service answers 429") as error:
        write(Post("crm", {"n": "bigint"}, service.url), rows(*(f"{path}:1" for path in range(16))))
    assert error.value.wait == 60
    assert time.monotonic() - begun < 5
    assert len(service.requests) <= http.LANES
    with pytest.raises(SinkAwayError) as error:
        write_at_most_once(Post("crm", {"n": "bigint"}, service.url), rows("0:1", "1:1"))
    assert error.value.wait == 60


def test_at_most_once_retry_after_is_limited_and_ends_with_the_tier(service: Service) -> None:
    halt, service.retry_after = threading.Event(), "99999999999"
    service.answers = {"bell:0:2": [429] * 100}
    threading.Timer(0.5, halt.set).start()
    assert write_at_most_once(
        Post("bell", {"n": "bigint"}, service.url), rows("0:1", "0:2"), halt=halt
    ) == Written(1, lost=1)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("99999999999", 3600.0),
        ("9" * 400, 3600.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2026 07:27:00 GMT", 0.0),
        ("Wed, 21 Oct 2126 07:28:00 GMT", 3600.0),
        ("Wed, 21 Oct 99999 07:28:00 GMT", 0.0),
        ("Mon, 01 Jan 0001 00:00:00 +2359", 0.0),
        ("²", 0.0),
        ("soon", 0.0),
        ("", 0.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(header: str, seconds: float) -> None:
    assert http.retry_after_seconds(header, datetime(2026, 10, 21, 7, 28, tzinfo=UTC).timestamp()) == seconds


@pytest.mark.parametrize(
    ("value", "sent", "stored"),
    [
        ([float("nan"), 1.5], "[null, 1.5]", "[null, 1.5]"),
        ({"x": float("inf")}, '{"x": null}', '{"x": null}'),
        (["a\0b", "\\u0000"], r'["a\u0000b", "\\u0000"]', r'["ab", "\\u0000"]'),
        ([("a", -float("inf"))], '[["a", null]]', '[["a", null]]'),
        ([{"deep": [b"\x00ab"]}], '[{"deep": ["AGFi"]}]', '[{"deep": ["AGFi"]}]'),
        (b"\x00ab", '"AGFi"', '"AGFi"'),
    ],
)
def test_any_value_of_a_row_becomes_json_at_any_depth(value: Any, sent: str, stored: str) -> None:
    assert as_json({"n": value}) == f'{{"n": {sent}}}'
    assert as_json({"n": value}, nul="") == f'{{"n": {stored}}}'


def test_refused_rows_are_kept_in_a_form_that_postgresql_accepts(service: Service) -> None:
    service.answers, service.reason = {"crm:0:1": [422]}, b"no\0thing"
    batch = Rows({"n": [float("nan")], "m": [{"x": float("inf")}], "k": [["a\0b"]]}, ["0:1"], ["0"])
    _, refused_rows = write(Post("crm", {"n": "float8", "m": "jsonb", "k": "jsonb"}, service.url), batch)
    assert refused_rows == [("0:1", '{"n": null, "m": {"x": null}, "k": ["ab"]}', 422, "nothing", 7)]
    assert service.requests[0][1] == {"n": None, "m": {"x": None}, "k": ["a\0b"]}


def write_at_most_once(
    sink: Post, batch: Rows, marks: Marks | None = None, halt: threading.Event | None = None
) -> Written:
    cursor = cast("psycopg.Cursor[Any]", Cursor())
    return sink.write_at_most_once(
        cursor, batch, 7, {} if marks is None else marks, halt or threading.Event()
    )


def test_at_most_once_only_records_certainly_not_accepted_are_retried(service: Service) -> None:
    service.answers = {
        "bell:0:1": [429, 425],
        "bell:0:2": [500],
        "bell:0:3": [CLOSED],
        "bell:0:4": [408],
        "bell:0:5": [422],
    }
    sink, marks = Post("bell", {"n": "bigint"}, service.url), cast("Marks", {})
    assert write_at_most_once(sink, rows("0:1", "0:2", "0:3", "0:4", "0:5", "0:6"), marks) == Written(
        2, refused=1, lost=3
    )
    sent = Counter(key for key, _, _ in service.requests)
    assert sent == {"bell:0:1": 3, **{f"bell:0:{number}": 1 for number in range(2, 7)}}
    assert write_at_most_once(sink, rows("0:2", "0:7"), marks) == Written(1), (
        "a record that may have been accepted counts as a replay"
    )


@pytest.mark.parametrize("outage", ["it is not there", "it is busy"])
def test_at_most_once_no_record_is_at_risk_while_the_service_is_away(
    service: Service, outage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.5)
    service.answers = {"bell:0:1": [429] * 100}
    with serving(Service()) as stopped:
        url = stopped.url if outage == "it is not there" else service.url
    with pytest.raises(SinkAwayError, match="takes no records of sink bell"):
        write_at_most_once(Post("bell", {"n": "bigint"}, url), rows("0:1", "1:1"))
    assert {key for key, _, _ in service.requests} <= {"bell:0:1"}, "only the first record is sent"


def test_at_most_once_waits_for_a_service_that_fails_within_a_batch(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.2)
    service.answers = {"bell:0:2": [429] * 3, "bell:1:1": [425] * 3}
    assert write_at_most_once(
        Post("bell", {"n": "bigint"}, service.url), rows("0:1", "0:2", "0:3", "1:1", "1:2")
    ) == Written(5)


def test_at_most_once_a_hold_loses_the_unsent_records_of_the_batch(service: Service) -> None:
    halt = threading.Event()
    service.answers = {"bell:0:2": [429] * 100}
    threading.Timer(1.0, halt.set).start()
    begun = time.monotonic()
    assert write_at_most_once(
        Post("bell", {"n": "bigint"}, service.url), rows("0:1", "0:2", "0:3", "1:1"), halt=halt
    ) == Written(2, lost=2)
    assert time.monotonic() - begun < 5
    assert "bell:0:3" not in {key for key, _, _ in service.requests}


def test_at_most_once_a_hold_loses_nothing_while_the_service_takes_records(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.seconds, service.answers, halt = 0.05, {"bell:0:0": [500]}, threading.Event()
    many = rows(*(f"{number % 4}:{number}" for number in range(80)))
    threading.Timer(0.3, halt.set).start()
    sink = Post("bell", {"n": "bigint"}, service.url)
    assert write_at_most_once(sink, many, halt=halt) == Written(79, lost=1)
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.3)
    late = write_at_most_once(sink, many, halt=halt)
    assert late.new + late.lost == 80
    assert late.lost > 40, "the tier holds, whatever the service's speed"


def test_a_batch_is_returned_when_the_tier_holds_or_a_record_is_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.answers, service.seconds = {"crm:0:1": [503] * 100}, 0.1
    many = rows("0:1", *(f"1:{number}" for number in range(1000)))
    halt = threading.Event()
    threading.Timer(1.0, halt.set).start()
    with pytest.raises(SinkAwayError):
        write(Post("crm", {"n": "bigint"}, service.url), many, halt=halt)
    assert len(service.requests) < 30
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.5)
    service.requests.clear()
    with pytest.raises(SinkAwayError, match="takes no records of sink crm: the service answers 503"):
        write(Post("crm", {"n": "bigint"}, service.url), many)
    assert len(service.requests) < 30


def test_an_unreachable_service_ends_the_batch_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.5)
    with serving(Service()) as stopped:
        url = stopped.url
    begun = time.monotonic()
    with pytest.raises(SinkAwayError, match=r"takes no records of sink crm: ConnectError"):
        write(Post("crm", {"n": "bigint"}, url), rows("0:1"))
    assert time.monotonic() - begun < 5


def test_the_token_is_read_from_its_file(service: Service, tmp_path: Any) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    write(Post("crm", {"n": "bigint"}, service.url, str(tmp_path / "token")), rows("0:1"))
    assert service.requests[0][2] == "Bearer s3cret"


@pytest.mark.parametrize("held", [None, b"", b" \n", b"two words", b"\xff\xfe", "schlüssel".encode()])
def test_at_most_once_sends_and_loses_nothing_while_the_token_is_missing(
    service: Service, tmp_path: Any, held: bytes | None
) -> None:
    file = tmp_path / "token"
    if held is not None:
        file.write_bytes(held)
    sink = Post("crm", {"n": "bigint"}, service.url, str(file))
    for send in (write_at_most_once, write):
        with pytest.raises(SinkAwayError, match="nothing is sent to") as refused:
            send(sink, rows("0:1"))
        assert str(file) in str(refused.value)
    assert service.requests == []
    file.write_text("s3cret")
    assert write_at_most_once(sink, rows("0:1")) == Written(1)


@pytest.mark.parametrize(
    "url", ["crm.local", "ftp://crm.local", "http://", "http://crm.local:port", "http://crm\x00.local"]
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(DeclarationError, match=r"is no http\(s\) address"):
        Post("crm", {}, url)


def test_at_most_once_a_request_that_cannot_be_sent_is_not_lost(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.2)

    def refuse_request(*_: object, **__: object) -> None:
        message = "no header can hold it"
        raise httpx.LocalProtocolError(message)

    sink = Post("bell", {"n": "bigint"}, service.url)
    with monkeypatch.context() as patched:
        patched.setattr(httpx.Client, "post", refuse_request)
        with pytest.raises(SinkAwayError, match="LocalProtocolError"):
            write_at_most_once(sink, rows("0:1", "0:2"))
    assert write_at_most_once(sink, rows("0:1", "0:2")) == Written(2)
