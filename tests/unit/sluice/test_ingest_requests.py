"""Requests to `sluice ingest http`: bad records, repeated keys, and back-pressure."""

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import cast

import httpx
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st

from sluice.ingest import http, request_writer
from sluice.ingest.request_writer import RequestWriter
from sluice.ingest.requests import KEEP_SECONDS, Answer, Answers, Meter, RefusedError, parse
from sluice.ingest.source import RECORD_BYTES, NotWrittenError, Record, Source, SourceError, TakenOverError

NDJSON = {"Content-Type": "application/x-ndjson"}
TOKEN = "a-token-of-a-client"


class Kafka:
    """A source whose transactions a test can hold back or let fail."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.memory: dict[str, bytes] = {}
        self.failures: list[Exception] = []
        self.transactions = 0
        self.open = threading.Event()
        self.open.set()

    def write(self, records: Sequence[Record], memory: Mapping[str, bytes | None]) -> None:
        assert self.open.wait(10)
        self.transactions += 1
        if self.failures:
            raise self.failures.pop(0)
        self.records += records
        for part, value in memory.items():
            if value is None:
                del self.memory[part]
            else:
                self.memory[part] = value

    def values(self) -> list[str]:
        return [record.value.decode() for record in self.records]


class Served:
    """A server on a real port."""

    def __init__(
        self, writer: RequestWriter, server: uvicorn.Server, client: httpx.Client, by_status: Counter[int]
    ) -> None:
        self.writer, self.server, self.client, self.by_status = writer, server, client, by_status

    def post(self, content: bytes | Iterator[bytes], headers: Mapping[str, str]) -> httpx.Response:
        return self.client.post("/records", content=content, headers=headers)


@contextmanager
def served(kafka: Kafka, known: Sequence[bytes] = (), field: str | None = None) -> Iterator[Served]:
    writer = RequestWriter(cast("Source", kafka), Answers(kafka.memory), threading.Event())
    by_status: Counter[int] = Counter()
    server = uvicorn.Server(
        uvicorn.Config(http.application(writer, known, field, by_status), log_config=None)
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threads = [
            threading.Thread(target=server.run, kwargs={"sockets": [listening]}),
            threading.Thread(target=writer.run),
        ]
        for thread in threads:
            thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
                yield Served(writer, server, client, by_status)
        finally:
            server.should_exit = True
            writer.close()
            for thread in threads:
                thread.join()


def test_a_batch_is_written_in_order_with_its_keys() -> None:
    kafka = Kafka()
    with served(kafka, field="user") as web:
        body = b'{"user": "a", "n": 1}\r\n\n  {"user": 7}\n{"n": 3}'
        answer = web.post(body, NDJSON)
    assert (answer.status_code, answer.json()) == (200, {"records": 3})
    assert kafka.values() == ['{"user": "a", "n": 1}', '{"user": 7}', '{"n": 3}']
    assert [record.key for record in kafka.records] == [b"a", b"7", None]


def test_one_json_record_may_have_several_lines() -> None:
    kafka = Kafka()
    with served(kafka) as web:
        json_type = {"Content-Type": "application/json; charset=utf-8"}
        assert web.post(b'{"n": 1}', json_type).status_code == 200
        several = web.post(b'{\n "n": 2\n}\n', json_type)
    assert several.json() == {"records": 1}
    assert [json.loads(value) for value in kafka.values()] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"{", "no JSON"),
        (b"[1]", "send an object"),
        (b'"text"', "send an object"),
        (b'{"n": NaN}', "NaN is not a JSON number"),
        (b'{"n": "\xff"}', "no JSON in UTF-8"),
        (b'{"n":' + b"[" * 100_000, "nested too deeply"),
        (b'{"n": ' + b"9" * 10_000 + b"}", "no JSON"),
        (b'{"n": "' + b"x" * RECORD_BYTES + b'"}', "the limit is"),
        (b'{"user": "' + b"x" * 20_000 + b'"}', "user has 20000 bytes"),
    ],
)
def test_a_bad_record_refuses_the_whole_batch_and_names_its_line(bad: bytes, words: str) -> None:
    kafka = Kafka()
    with served(kafka, field="user") as web:
        answer = web.post(b'{"n": 1}\n\n' + bad + b"\n{}\n", NDJSON)
    assert (answer.status_code, answer.json()["line"]) == (400, 3)
    assert words in answer.json()["error"]
    assert not kafka.records


@pytest.mark.parametrize(
    ("headers", "content", "status"),
    [
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"{}", 415),
        ({**NDJSON, "Content-Encoding": "gzip"}, b"{}", 415),
        (NDJSON, b" \n\n", 400),
        (NDJSON, b" " * (http.BODY_BYTES + 1), 413),
        ({**NDJSON, "Idempotency-Key": ""}, b"{}", 400),
        ({**NDJSON, "Idempotency-Key": "x" * 256}, b"{}", 400),
    ],
)
def test_other_wrong_requests_are_refused(headers: dict[str, str], content: bytes, status: int) -> None:
    kafka = Kafka()
    with served(kafka) as web:
        assert web.post(content, headers).status_code == status
        assert web.client.get("/records").status_code == 405
    assert not kafka.records


def test_a_body_without_a_length_is_refused_where_it_becomes_too_large() -> None:
    with served(Kafka()) as web:
        parts = (b" " * 1024 * 1024 for _ in range(5))
        assert web.post(parts, NDJSON).status_code == 413


def test_a_repeated_key_gets_the_same_answer_also_after_a_restart() -> None:
    kafka = Kafka()
    for _ in range(2):
        with served(kafka) as web:
            for _ in range(2):
                answer = web.post(b"{}\n{}", NDJSON | {"Idempotency-Key": "k"})
                assert (answer.status_code, answer.json()) == (200, {"records": 2})
            other = web.post(b"{}", NDJSON | {"Idempotency-Key": "k"})
            assert other.status_code == 422
    assert len(kafka.records) == 2


def test_a_key_whose_records_were_not_written_may_be_used_again() -> None:
    kafka = Kafka()
    kafka.failures = [NotWrittenError("broker away")]
    headers = NDJSON | {"Idempotency-Key": "k"}
    with served(kafka) as web:
        web.writer._stop.set()  # no pause after the failure
        failed = web.post(b"{}", headers)
        assert (failed.status_code, failed.headers["Retry-After"]) == (503, "5")
        assert web.client.get("/health").status_code == 503
        assert web.post(b'{"n": 2}', headers).status_code == 200
        assert web.client.get("/health").json() == {"status": "ok"}
    assert kafka.values() == ['{"n": 2}']


def test_the_same_key_at_the_same_time_is_written_once() -> None:
    kafka = Kafka()
    writer = RequestWriter(cast("Source", kafka), Answers({}), threading.Event())
    records = parse(b"{}", "application/json", None)
    first = writer.submit("k", "body", "k", records)
    assert writer.submit("k", "body", "k", records) is first
    with pytest.raises(RefusedError, match="another body"):
        writer.submit("k", "other", "k", records)
    writer.close()
    writer.run()
    assert (first.result().records, len(kafka.records)) == (1, 1)


def test_many_waiting_requests_share_a_transaction() -> None:
    kafka = Kafka()
    writer = RequestWriter(cast("Source", kafka), Answers({}), threading.Event())
    records = parse(b"{}", "application/json", None)
    answers = [writer.submit(str(number), "body", "", records) for number in range(50)]
    writer.close()
    writer.run()
    assert kafka.transactions == 1
    assert all(answer.result().records == 1 for answer in answers)


def test_a_full_buffer_refuses_until_kafka_has_taken_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_writer, "BUFFER_BYTES", 30)
    writer = RequestWriter(cast("Source", Kafka()), Answers({}), threading.Event())
    records = parse(b'{"n": "0123456789"}', "application/json", None)
    writer.submit(None, "", "", records)
    with pytest.raises(RefusedError, match="wait for Kafka") as refused:
        writer.submit(None, "", "", records)
    assert (refused.value.status, refused.value.after) == (429, 1)
    writer.close()
    writer.run()
    assert writer._bytes == 0


@pytest.mark.parametrize("error", [TakenOverError("taken over"), SourceError("ended")])
def test_a_source_that_ended_answers_every_waiting_request(error: SourceError) -> None:
    kafka = Kafka()
    kafka.failures = [error]
    writer = RequestWriter(cast("Source", kafka), Answers({}), threading.Event())
    records = parse(b"{}", "application/json", None)
    answers: list[Future[Answer]] = [writer.submit(str(number), "", "", records) for number in range(3)]
    writer.run()
    assert all(isinstance(answer.exception(), RefusedError) for answer in answers)
    assert writer.trouble(time.monotonic()) == str(error)
    with pytest.raises(RefusedError, match="stopping"):
        writer.submit(None, "", "", records)


def test_a_throttled_stream_refuses_but_answers_repeated_keys() -> None:
    headers = NDJSON | {"Idempotency-Key": "k"}
    with served(Kafka()) as web:
        assert web.post(b"{}", headers).status_code == 200
        web.writer.throttle(0.0)
        refused = web.post(b"{}", NDJSON)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")
        assert web.post(b"{}", headers).status_code == 200
        web.writer.throttle(None)
        assert web.post(b"{}", NDJSON).status_code == 200


@given(
    st.floats(0.5, 1e4),
    st.lists(st.tuples(st.floats(0.001, 5), st.integers(1, 1000)), min_size=1, max_size=50),
)
def test_a_meter_lets_in_the_admitted_rate_and_no_more(
    rate: float, requests: list[tuple[float, int]]
) -> None:
    meter, now, taken, last = Meter(), 100.0, 0, 0
    meter.admitted = rate
    for pause, records in requests:
        now += pause
        after = meter.refuse(now)
        if after is None:
            meter.take(records)
            taken, last = taken + records, records
        else:
            assert 1 <= after <= 60
            assert after == 60 or meter.refuse(now + after) is None
            now += after
    assert taken - last <= rate * (now - 100.0) * (1 + 1e-9) + 1e-6


def test_what_was_committed_refused_and_answered_is_counted() -> None:
    kafka = Kafka()
    with served(kafka) as web:
        assert web.post(b'{"n": 1}\n{"n": 2}', NDJSON).status_code == 200
        assert web.post(b"{", NDJSON).status_code == 400
        kafka.failures.append(NotWrittenError("full"))
        assert web.post(b'{"n": 3}', NDJSON).status_code == 503
        written = web.writer.written
        assert (written.records, written.bytes, written.refused) == (2, 16, 1)
        assert time.time() - written.last < 60
        assert web.by_status == {200: 1, 400: 1, 503: 1}
        assert web.writer.waiting_bytes == 0


def test_tokens_open_the_source_and_nothing_else_does(tmp_path: Path) -> None:
    (file := tmp_path / "tokens").write_text(f"{TOKEN}\nanother-token-of-another\n")
    file.chmod(0o640)
    kafka = Kafka()
    with served(kafka, http.tokens(file, ip_address("10.0.0.1"))) as web:
        for given_header, status in (
            (None, 401),
            (f"Basic {TOKEN}", 401),
            ("Bearer wrong", 401),
            ("Bearer", 401),
            (f"Bearer {TOKEN}", 200),
            ("bearer another-token-of-another", 200),
        ):
            headers = NDJSON if given_header is None else NDJSON | {"Authorization": given_header}
            answer = web.post(b"{}", headers)
            assert (answer.status_code, "WWW-Authenticate" in answer.headers) == (status, status == 401)
        assert web.client.get("/health").status_code == 200
    assert len(kafka.records) == 2


def test_an_address_of_the_network_needs_a_private_file_of_tokens(tmp_path: Path) -> None:
    assert http.tokens(None, ip_address("::1")) == []
    with pytest.raises(SourceError, match="add --token-file"):
        http.tokens(None, ip_address("10.0.0.1"))
    file = tmp_path / "tokens"
    with pytest.raises(SourceError, match="cannot be read"):
        http.tokens(file, ip_address("127.0.0.1"))
    for text, mode, words in (
        ("short\n", 0o600, "at least 16"),
        ("", 0o600, "at least 16"),
        (TOKEN, 0o644, "chmod"),
    ):
        file.write_text(text)
        file.chmod(mode)
        with pytest.raises(SourceError, match=words):
            http.tokens(file, ip_address("127.0.0.1"))


def test_an_answer_is_forgotten_after_a_day() -> None:
    memory: dict[str, bytes | None] = {}
    answers = Answers({})
    for number, at in enumerate((0.0, KEEP_SECONDS / 2, KEEP_SECONDS + 1)):
        new = {str(number): Answer(body="b", records=1, at=at)}
        memory |= answers.changes(new, at)
        answers.remember(new, at)
    assert memory["key/0"] is None
    kept = Answers({part: value for part, value in memory.items() if value is not None})
    assert answers.find("0", "b", KEEP_SECONDS + 1) is None
    assert kept.find("1", "b", KEEP_SECONDS + 1) == Answer(body="b", records=1, at=KEEP_SECONDS / 2)
    assert (len(answers), len(kept)) == (2, 2)
    assert kept.find("1", "b", 3 * KEEP_SECONDS) is None, "an expired answer counts no more"
