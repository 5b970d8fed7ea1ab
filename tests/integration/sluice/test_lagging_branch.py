"""A service that is away holds back only the tier that may lag.

The entry and the table flow on, also while the lagging tier's driver is killed and the tier is
handed over. The service gets every record once when it is back.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from sluice_ops.model.backpressure import Pressure
from sluice_ops.model.ids import TierName
from sluice_ops.model.incarnation import Phase, State
from tests.http_service import Quiet, serving
from tests.integration.sluice.lagging_pipeline import MARKS, PIPELINE
from tests.integration.sluice.test_http_sink import sums
from tests.lab import Lab, until
from tests.throttling import Throttle

PIPELINE_MODULE = "tests.integration.sluice.lagging_pipeline"
KEPT_SECONDS = 3600
NUMBERS = 300
TIERS = {spec.name: spec for spec in PIPELINE.specs()}

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


class Service(ThreadingHTTPServer):
    """Answers 503 while it is away; keeps each number once for each key."""

    daemon_threads = True
    away = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.numbers: dict[str, int] = {}


class Handler(Quiet, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.server.away:
            self.server.numbers[self.headers["Idempotency-Key"]] = body["n"]
        with suppress(OSError):
            self.send_response(503 if self.server.away else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()


@pytest.fixture(scope="module", autouse=True)
def service() -> Iterator[Service]:
    with serving(Service()) as server:
        os.environ["SLUICE_TEST_SERVICE"] = f"http://127.0.0.1:{server.server_port}"
        yield server
        del os.environ["SLUICE_TEST_SERVICE"]


def keep_an_hour(lab: Lab, stream: str) -> None:
    entry = ConfigEntry("retention.ms", str(KEPT_SECONDS * 1000), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, stream, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result()


def feed(lab: Lab, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
    for number in range(first, first + count):
        producer.produce("raw", json.dumps({"n": number}), partition=number % 4)
    assert producer.flush(60) == 0


def waits_for_service(lab: Lab, number: int) -> bool:
    """Tell whether an incarnation of `call` reports that its sink takes no records."""
    report = lab.report("call", number)
    return report is not None and report.away is not None


def test_a_service_that_is_away_holds_back_only_its_own_tier(lab: Lab, service: Service) -> None:
    keep_an_hour(lab, "numbers")
    throttle = Throttle(lab, TIERS, "enter")
    throttle.register_as_leader()
    for tier, host in (("enter", "h1"), ("store", "h2"), ("call", "h1")):
        lab.start_owner(tier, 1, host)
    feed(lab, 0, NUMBERS)

    def stored() -> int:
        throttle.step()
        return int(lab.query("select count(*) from stored")[0][0])

    def lags_with_expiry(number: int) -> Pressure | None:
        throttle.step()
        report = lab.report("call", number)
        pressure = None if report is None else report.pressure
        return pressure if pressure is not None and pressure.expiry is not None else None

    until("the table has the records", lambda: stored() == NUMBERS, seconds=420)
    pressure = until("the lag is reported with its expiry", lambda: lags_with_expiry(1), seconds=240)
    print("call", pressure.sentence, "|", pressure.expiry.sentence if pressure.expiry else None)
    feed(lab, NUMBERS, NUMBERS)
    until("the entry and the table flow on", lambda: stored() == 2 * NUMBERS)
    # On a busy machine, the entry may wait for the table.
    assert TierName("call") not in throttle.culprits, "the entry was throttled for a tier that may lag"
    assert pressure.stream == "numbers"
    assert pressure.lag is not None
    assert pressure.lag.seconds > MARKS.high.seconds
    assert pressure.expiry is not None
    assert pressure.expiry.kept == KEPT_SECONDS
    assert not pressure.expiry.near

    # the driver of the lagging tier is killed, and the next one lags on
    lab.driver("call", 1).kill()
    lab.stop("call", 1)
    lab.start_owner("call", 2, "h1")
    until("the next driver reports the lag", lambda: lags_with_expiry(2))

    # the tier is handed over while its service is away
    lab.prepare("call", 2, 3, "h2")
    feed(lab, 2 * NUMBERS, NUMBERS)
    until("the entry and the table flow on", lambda: stored() == 3 * NUMBERS)
    assert TierName("call") not in throttle.culprits
    lab.set_owner("call", 2, 3, Phase.CUT)
    until("neither can write", lambda: waits_for_service(lab, 2) and waits_for_service(lab, 3))
    lab.set_owner("call", 3)
    lab.wait_for("call", 2, State.STOPPED)
    lab.stop("call", 2)
    assert not service.numbers
    service.away = False
    until("the service has all records", lambda: len(service.numbers) == 3 * NUMBERS, seconds=240)
    assert Counter(service.numbers.values()) == Counter(range(3 * NUMBERS)), "each number once"
    assert lab.query("select count(*), count(distinct n) from stored") == [(3 * NUMBERS, 3 * NUMBERS)]
    until("the ledger has all records", lambda: sums(lab, "call")["rows_in"] == 3 * NUMBERS)
    assert sums(lab, "call")["rows_out"] == 3 * NUMBERS
