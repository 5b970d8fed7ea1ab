"""The HTTP sink against a real server: each record once and in order, again when it has to be, aside when it is refused."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
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

CUT = 0
"""Instead of a status: the connection is closed without an answer."""


class Service(ThreadingHTTPServer):
    """Answers as told, and remembers what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[str, dict[str, Any], str | None]] = []
        self.answers: dict[str, list[int]] = {}
        self.after: str | None = None
        """What each answer but a good one says in `Retry-After`."""
        self.because = b"because"
        self.seconds = 0.0
        """So long each answer takes."""
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hits"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        with self.server.lock:
            self.server.got.append((key, body, self.headers["Authorization"]))
            answers = self.server.answers.get(key, [])
            status = answers.pop(0) if answers else 200
        time.sleep(self.server.seconds)
        if status == CUT:
            self.close_connection = True
            return
        said = self.server.because if status != 200 else b""
        self.send_response(status)
        if status != 200 and self.server.after is not None:
            self.send_header("Retry-After", self.server.after)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's word
        pass


@contextmanager
def served() -> Iterator[Service]:
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def service() -> Iterator[Service]:
    with served() as server:
        yield server


class Cursor:
    """Takes what is written into PostgreSQL."""

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
    sink: Post, given: Rows, marks: Marks | None = None, halt: threading.Event | None = None
) -> tuple[Written, list[tuple[Any, ...]]]:
    cursor = Cursor()
    written = sink.write(
        cast("psycopg.Cursor[Any]", cursor),
        given,
        7,
        {} if marks is None else marks,
        halt or threading.Event(),
    )
    return written, cursor.rows


def test_each_record_is_sent_once_in_order_under_its_own_name(service: Service) -> None:
    marks: Marks = {}
    sink = Post("crm", {"n": "bigint"}, service.url)
    assert write(sink, rows("0:1", "1:1", "0:2", "1:2", "0:3"), marks) == (Written(5), [])
    assert write(sink, rows("0:3", "0:4"), marks) == (Written(1), []), "a replay is not sent again"
    for path in "01":
        assert [key for key, _, _ in service.got if key.startswith(f"crm:{path}:")] == [
            f"crm:{path}:{number}" for number in ((1, 2, 3, 4) if path == "0" else (1, 2))
        ]
    assert all(body == {"n": int(key.split(":")[2])} for key, body, _ in service.got)


def test_what_is_not_taken_now_is_sent_again_under_the_same_name(service: Service) -> None:
    service.answers = {"crm:0:1": [503, 429]}
    assert write(Post("crm", {"n": "bigint"}, service.url), rows("0:1", "0:2")) == (Written(2), [])
    assert [key for key, _, _ in service.got] == ["crm:0:1", "crm:0:1", "crm:0:1", "crm:0:2"]


def test_what_will_never_be_taken_is_kept_with_the_answer(service: Service) -> None:
    service.answers = {"crm:0:2": [422]}
    written, kept = write(Post("crm", {"n": "bigint"}, service.url), rows("0:1", "0:2", "0:3"))
    assert written == Written(2, refused=1)
    assert kept == [("0:2", '{"n": 2}', 422, "because", 7)]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 401, 403, 404, 405, 407, 421, 426])
def test_records_are_not_to_blame_for_a_token_or_an_address(
    service: Service, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.3)
    service.answers = {"crm:0:1": [status] * 100}
    with pytest.raises(
        SinkAwayError,
        match=f"takes no records of sink crm: the service answers {status}.* correct the sink's `url` or its token",
    ):
        write(Post("crm", {"n": "bigint"}, service.url), rows("0:1"))


@pytest.mark.parametrize("status", [403, 404, 409])
def test_a_service_may_mean_the_record_by_an_answer(
    service: Service, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.3)
    service.answers = {"crm:0:2": [status]}
    sink = Post("crm", {"n": "bigint"}, service.url, refuses=frozenset({status}))
    assert write(sink, rows("0:1", "0:2", "0:3")) == (
        Written(2, refused=1),
        [("0:2", '{"n": 2}', status, "because", 7)],
    )


def test_what_it_waits_for_says_how_to_have_the_record_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.3)
    service.answers = {"crm:0:1": [404] * 100}
    with pytest.raises(
        SinkAwayError, match="if the service means the record, add 404 to the sink's `refuses`"
    ):
        write(Post("crm", {"n": "bigint"}, service.url), rows("0:1"))


@pytest.mark.parametrize("status", [200, 401, 407, 408, 425, 429, 500])
def test_an_answer_that_is_never_about_a_record_cannot_refuse_one(status: int) -> None:
    with pytest.raises(
        DeclarationError,
        match=f'sink "crm": `refuses` has {status}, which no service uses to refuse a record; name statuses',
    ):
        Post("crm", {}, "http://crm.local", refuses=frozenset({status, 404}))


def test_whoever_is_asked_for_quiet_says_so_and_sends_no_more(service: Service) -> None:
    service.after = "60"
    service.answers = {f"crm:{path}:1": [429] * 100 for path in range(16)}
    begun = time.monotonic()
    with pytest.raises(SinkAwayError, match="the service answers 429") as away:
        write(Post("crm", {"n": "bigint"}, service.url), rows(*(f"{path}:1" for path in range(16))))
    assert away.value.wait == 60
    assert time.monotonic() - begun < 5
    assert len(service.got) <= http.LANES
    with pytest.raises(SinkAwayError) as away:
        once(Post("crm", {"n": "bigint"}, service.url), rows("0:1", "1:1"))
    assert away.value.wait == 60


def test_at_most_once_quiet_for_ever_is_an_hour_and_ends_with_the_tier(service: Service) -> None:
    halt, service.after = threading.Event(), "99999999999"
    service.answers = {"bell:0:2": [429] * 100}
    threading.Timer(0.5, halt.set).start()
    assert once(Post("bell", {"n": "bigint"}, service.url), rows("0:1", "0:2"), halt=halt) == Written(
        1, lost=1
    )


@pytest.mark.parametrize(
    ("said", "seconds"),
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
def test_quiet_is_asked_for_in_seconds_or_up_to_a_date(said: str, seconds: float) -> None:
    assert http.retry_after_seconds(said, datetime(2026, 10, 21, 7, 28, tzinfo=UTC).timestamp()) == seconds


@pytest.mark.parametrize(
    ("value", "sent", "kept"),
    [
        ([float("nan"), 1.5], "[null, 1.5]", "[null, 1.5]"),
        ({"x": float("inf")}, '{"x": null}', '{"x": null}'),
        (["a\0b", "\\u0000"], r'["a\u0000b", "\\u0000"]', r'["ab", "\\u0000"]'),
        ([("a", -float("inf"))], '[["a", null]]', '[["a", null]]'),
        ([{"deep": [b"\x00ab"]}], '[{"deep": ["AGFi"]}]', '[{"deep": ["AGFi"]}]'),
        (b"\x00ab", '"AGFi"', '"AGFi"'),
    ],
)
def test_json_has_a_word_for_all_that_is_in_a_row_however_deep(value: Any, sent: str, kept: str) -> None:
    assert as_json({"n": value}) == f'{{"n": {sent}}}'
    assert as_json({"n": value}, nul="") == f'{{"n": {kept}}}'


def test_what_is_kept_is_what_postgresql_takes(service: Service) -> None:
    service.answers, service.because = {"crm:0:1": [422]}, b"no\0thing"
    given = Rows({"n": [float("nan")], "m": [{"x": float("inf")}], "k": [["a\0b"]]}, ["0:1"], ["0"])
    _, kept = write(Post("crm", {"n": "float8", "m": "jsonb", "k": "jsonb"}, service.url), given)
    assert kept == [("0:1", '{"n": null, "m": {"x": null}, "k": ["ab"]}', 422, "nothing", 7)]
    assert service.got[0][1] == {"n": None, "m": {"x": None}, "k": ["a\0b"]}


def once(sink: Post, given: Rows, marks: Marks | None = None, halt: threading.Event | None = None) -> Written:
    cursor = cast("psycopg.Cursor[Any]", Cursor())
    return sink.write_at_most_once(
        cursor, given, 7, {} if marks is None else marks, halt or threading.Event()
    )


def test_at_most_once_only_what_was_not_taken_for_certain_is_sent_again(service: Service) -> None:
    service.answers = {
        "bell:0:1": [429, 425],
        "bell:0:2": [500],
        "bell:0:3": [CUT],
        "bell:0:4": [408],
        "bell:0:5": [422],
    }
    sink, marks = Post("bell", {"n": "bigint"}, service.url), cast("Marks", {})
    assert once(sink, rows("0:1", "0:2", "0:3", "0:4", "0:5", "0:6"), marks) == Written(2, refused=1, lost=3)
    sent = Counter(key for key, _, _ in service.got)
    assert sent == {"bell:0:1": 3, **{f"bell:0:{number}": 1 for number in range(2, 7)}}
    assert once(sink, rows("0:2", "0:7"), marks) == Written(1), (
        "what may have been taken is a replay from now on"
    )


@pytest.mark.parametrize("away", ["it is not there", "it is busy"])
def test_at_most_once_nothing_is_at_risk_while_the_service_takes_nothing(
    service: Service, away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.5)
    service.answers = {"bell:0:1": [429] * 100}
    with served() as gone:
        url = gone.url if away == "it is not there" else service.url
    with pytest.raises(SinkAwayError, match="takes no records of sink bell"):
        once(Post("bell", {"n": "bigint"}, url), rows("0:1", "1:1"))
    assert {key for key, _, _ in service.got} <= {"bell:0:1"}, "the first record goes alone"


def test_at_most_once_waits_for_a_service_that_fails_within_a_batch(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.2)
    service.answers = {"bell:0:2": [429] * 3, "bell:1:1": [425] * 3}
    assert once(
        Post("bell", {"n": "bigint"}, service.url), rows("0:1", "0:2", "0:3", "1:1", "1:2")
    ) == Written(5)


def test_at_most_once_what_was_not_sent_when_the_tier_is_to_hold_is_lost(service: Service) -> None:
    halt = threading.Event()
    service.answers = {"bell:0:2": [429] * 100}
    threading.Timer(1.0, halt.set).start()
    begun = time.monotonic()
    assert once(
        Post("bell", {"n": "bigint"}, service.url), rows("0:1", "0:2", "0:3", "1:1"), halt=halt
    ) == Written(2, lost=2)
    assert time.monotonic() - begun < 5
    assert "bell:0:3" not in {key for key, _, _ in service.got}


def test_a_batch_is_returned_when_the_tier_holds_or_a_record_is_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.answers, service.seconds = {"crm:0:1": [503] * 100}, 0.1
    many = rows("0:1", *(f"1:{number}" for number in range(1000)))
    halt = threading.Event()
    threading.Timer(1.0, halt.set).start()
    with pytest.raises(SinkAwayError):
        write(Post("crm", {"n": "bigint"}, service.url), many, halt=halt)
    assert len(service.got) < 30
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.5)
    service.got.clear()
    with pytest.raises(SinkAwayError, match="takes no records of sink crm: the service answers 503"):
        write(Post("crm", {"n": "bigint"}, service.url), many)
    assert len(service.got) < 30


def test_a_service_that_is_away_gives_the_batch_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.5)
    with served() as gone:
        url = gone.url
    begun = time.monotonic()
    with pytest.raises(SinkAwayError, match=r"takes no records of sink crm: ConnectError"):
        write(Post("crm", {"n": "bigint"}, url), rows("0:1"))
    assert time.monotonic() - begun < 5


def test_the_token_is_read_from_its_file(service: Service, tmp_path: Any) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    write(Post("crm", {"n": "bigint"}, service.url, str(tmp_path / "token")), rows("0:1"))
    assert service.got[0][2] == "Bearer s3cret"


@pytest.mark.parametrize("held", [None, b"", b" \n", b"two words", b"\xff\xfe", "schlüssel".encode()])
def test_at_most_once_sends_and_loses_nothing_while_the_token_is_missing(
    service: Service, tmp_path: Any, held: bytes | None
) -> None:
    file = tmp_path / "token"
    if held is not None:
        file.write_bytes(held)
    sink = Post("crm", {"n": "bigint"}, service.url, str(file))
    for send in (once, write):
        with pytest.raises(SinkAwayError, match="nothing is sent to") as refused:
            send(sink, rows("0:1"))
        assert str(file) in str(refused.value)
    assert service.got == []
    file.write_text("s3cret")
    assert once(sink, rows("0:1")) == Written(1)


@pytest.mark.parametrize(
    "url", ["crm.local", "ftp://crm.local", "http://", "http://crm.local:port", "http://crm\x00.local"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(DeclarationError, match=r"is no http\(s\) address"):
        Post("crm", {}, url)


def test_at_most_once_what_cannot_even_be_put_on_the_way_is_not_lost(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "GIVE_UP_SECONDS", 0.2)

    def refuses(*_: object, **__: object) -> None:
        message = "no header can hold it"
        raise httpx.LocalProtocolError(message)

    sink = Post("bell", {"n": "bigint"}, service.url)
    with monkeypatch.context() as broken:
        broken.setattr(httpx.Client, "post", refuses)
        with pytest.raises(SinkAwayError, match="LocalProtocolError"):
            once(sink, rows("0:1", "0:2"))
    assert once(sink, rows("0:1", "0:2")) == Written(2)
