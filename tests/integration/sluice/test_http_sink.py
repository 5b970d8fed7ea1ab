"""Tiers that call an HTTP service which fails, does not answer or answers late: each record arrives
once, or at most once, though drivers and executors are killed and tiers are handed over.
"""

import json
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from confluent_kafka import Producer

from sluice.api import declarations
from sluice.audit.__main__ import Auditor
from sluice.kafka.reader import Streams
from sluice.sinks.http import ANSWER_SECONDS
from sluice_ops.queries import figures
from tests.http_service import Quiet, serving
from tests.integration.sluice.http_pipeline import AT_RISK
from tests.integration.sluice.state_feed import ends
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.http_pipeline"
TAKES_SECONDS = 0.02
ALL = 700
"""The number of records before the tier that delivers at most once starts."""
WRITERS = "select distinct incarnation from ledger where tier = 'call'"

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


class Service(ThreadingHTTPServer):
    """Counts each key once, however often it is sent; fails for some numbers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.posts: dict[str, list[float]] = defaultdict(list)
        self.taken: Counter[tuple[str, int]] = Counter()
        self.keys: set[str] = set()
        self.lock = threading.Lock()

    def post(self, key: str) -> int:
        """Record a POST; return how many POSTs of its key have come."""
        with self.lock:
            self.posts[key].append(time.monotonic())
            return len(self.posts[key])

    def take(self, path: str, key: str, number: int) -> None:
        with self.lock:
            if key not in self.keys:
                self.keys.add(key)
                self.taken[path, number] += 1

    def numbers(self, path: str) -> Counter[int]:
        with self.lock:
            return Counter(
                {number: count for (record_path, number), count in self.taken.items() if record_path == path}
            )

    def times(self, sink: str) -> dict[str, list[float]]:
        with self.lock:
            return {key: list(times) for key, times in self.posts.items() if key.startswith(f"{sink}:")}


class Handler(Quiet, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_POST(self) -> None:
        number, key = (
            json.loads(self.rfile.read(int(self.headers["Content-Length"])))["n"],
            self.headers["Idempotency-Key"],
        )
        turn = self.server.post(key)
        kind = number % 50
        time.sleep(TAKES_SECONDS)
        if kind == 1 and turn <= 4:
            self.answer(500)
        elif kind == 2 and turn == 1:
            self.answer(429, after=1)
        elif kind == 5:
            self.answer(422)
        else:
            self.server.take(self.path, key, number)
            if kind == 3 and turn == 1:
                self.close_connection = True  # the service has accepted the record, but its answer is lost
            else:
                time.sleep(ANSWER_SECONDS + 1 if number == 4 and turn == 1 else 0)
                self.answer(200)

    def answer(self, status: int, after: int | None = None) -> None:
        with suppress(OSError):
            self.send_response(status)
            if after is not None:
                self.send_header("Retry-After", str(after))
            self.send_header("Content-Length", "0")
            self.end_headers()


@pytest.fixture(scope="module", autouse=True)
def service() -> Iterator[Service]:
    with serving(Service()) as server:
        os.environ["SLUICE_TEST_SERVICE"] = f"http://127.0.0.1:{server.server_port}"
        yield server
        del os.environ["SLUICE_TEST_SERVICE"]


def put(lab: Lab, end: int) -> None:
    """Write the missing numbers below `end`; each is at the offset `number // 4` of partition
    `number % 4`.
    """
    with closing(Streams(lab.endpoints.kafka)) as streams:
        first = sum(streams.bounds(["raw"]).ends.values())
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
    for number in range(first, end):
        producer.produce("raw", json.dumps({"n": number}), partition=number % 4)
    assert producer.flush(30) == 0


def is_done(lab: Lab, tier: str) -> bool:
    with closing(Streams(lab.endpoints.kafka)) as streams:
        return ends(lab, tier) == streams.bounds(["raw"]).ends


def sums(lab: Lab, tier: str) -> dict[str, int]:
    """Return the ledger's sums of a tier."""
    names = ("rows_in", "rows_out", "filtered", "quarantined", "replays", "lost")
    columns = ", ".join(f"sum({name})" for name in names)
    rows = lab.query(f"select tier, {columns} from ledger group by tier")  # noqa: S608
    return next(dict(zip(names, map(int, row[1:]), strict=True)) for row in rows if row[0] == tier)


def test_a_service_in_trouble_gets_each_record_once(lab: Lab, service: Service) -> None:
    put(lab, 300)
    lab.start_owner("call", 1, "h1")
    until("the service has accepted 20 records", lambda: len(service.numbers("/crm")) > 20)
    until(
        "a record was sent again after a late answer",
        lambda: len(service.times("crm").get("crm:0:1", ())) > 1,
    )
    lab.driver("call", 1).kill()
    lab.stop("call", 1)
    put(lab, 400)
    lab.start_owner("call", 2, "h1")
    until("all records are done", lambda: is_done(lab, "call"))

    # a handover while the service is in the middle of the owner's batch
    lab.prepare("call", 2, 3, "h2")
    taken = len(service.numbers("/crm"))
    put(lab, 600)
    until("the owner is in the middle of a batch", lambda: len(service.numbers("/crm")) > taken + 20)
    lab.hand_over("call", 2, 3)
    put(lab, ALL)
    lab.kill_executor("call", 3)
    until("all records are done", lambda: is_done(lab, "call"))
    assert {(2,), (3,)} <= {*lab.query(WRITERS)}

    refused = {number for number in range(ALL) if number % 50 == 5}
    assert service.numbers("/crm") == Counter(set(range(ALL)) - refused), "each record once, by its key"
    assert sums(lab, "call") == {
        "rows_in": ALL,
        "rows_out": ALL - len(refused),
        "filtered": 0,
        "quarantined": len(refused),
        "replays": 0,
        "lost": 0,
    }
    assert {
        row[0] for row in lab.query("select (record->>'n')::int from crm_refused where status = 422")
    } == refused
    times = service.times("crm")
    waits = [
        later - earlier for earlier, later in zip(times["crm:1:75"], times["crm:1:75"][1:], strict=False)
    ]
    assert len(waits) >= 4, "the service answered number 301 with 500 four times"
    assert [wait >= least for wait, least in zip(waits, (0.1, 0.2, 0.4, 0.8), strict=False)] == [True] * 4, (
        "each wait is longer than the one before"
    )
    lab.set_owner("call", None)
    lab.stop("call", 3)


def test_at_most_once_sends_no_record_twice_and_reports_possible_losses(
    lab: Lab, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(lab.home / "endpoints.json"))
    put(lab, ALL)
    with closing(Auditor((declarations.load(PIPELINE_MODULE).tier("notify"),), lab.endpoints)) as auditor:
        assert auditor.check() == []
        lab.start_owner("notify", 1, "h2")
        until(
            "the tier is in the middle of a batch",
            lambda: len(service.times("bell")) > AT_RISK + AT_RISK // 4,
        )
        lab.driver("notify", 1).kill()
        lab.stop("notify", 1)
        assert lab.query("select count(*) from intents") == [(1,)], "the driver was killed during a batch"
        put(lab, ALL + 100)
        lab.start_owner("notify", 2, "h3")
        lab.prepare("notify", 2, 3, "h1")
        put(lab, count := ALL + 200)
        lab.hand_over("notify", 2, 3)
        until("all records are done", lambda: is_done(lab, "notify"))
        assert auditor.check() == [], "accepted losses cause no alert"
    posts, taken, ledger = service.times("bell"), service.numbers("/bell"), sums(lab, "notify")
    # 429 means that the service did not accept the record, so it is sent again; all others are sent
    # once
    busy = {f"bell:{number % 4}:{number // 4}" for number in range(count) if number % 50 == 2}
    assert max(len(times) for key, times in posts.items() if key not in busy) == 1
    assert max(taken.values()) == 1
    refused = ledger["quarantined"]
    assert ledger["rows_in"] == count == ledger["rows_out"] + ledger["lost"] + refused
    missing = count - len(taken) - sum(1 for number in range(count) if number % 50 == 5)
    assert 0 < missing <= ledger["lost"]
    alone = sum(1 for number in range(count) if number % 50 in {1, 3} or number == 4)
    assert ledger["lost"] <= AT_RISK + alone
    (audit_line,) = (line for line in figures.read_figures().audit if line.tier == "notify")
    assert audit_line.unknown == ledger["lost"]
    lab.set_owner("notify", None)
    lab.stop("notify", 3)
