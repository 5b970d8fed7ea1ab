"""Records in Avro with a real schema registry, on real Kafka: a driver and an executor are killed,
a tier is handed over, and schemas evolve, while each record reaches the table once.
"""

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sluice.api.formats import header
from tests.integration.sluice import avro_pipeline
from tests.integration.sluice.avro_pipeline import MAYBE, TEXT, schema
from tests.integration.sluice.format_checks import (
    Sender,
    assert_counted,
    counted,
    hand_over,
    is_complete,
    kill_each,
    publish,
    published_release,
    quarantined,
    records,
    start_each,
    stored,
)
from tests.lab import Lab, until
from tests.schema_registry import Registry, registry

PIPELINE_MODULE = "tests.integration.sluice.avro_pipeline"
GARBAGE = (b"{}", b"\0\0\0\x4e\x20\x02a", b"\xff\xfe binary", b"")
"""Not Avro; Avro of a schema that nobody registered; neither; nothing."""

pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def site(schemas: Registry) -> str:
    return f"hosts: []\nschema_registry: {schemas.address}\n"


def text(value: str) -> bytes:
    """Return a short text in Avro: its length, zigzag, and its bytes."""
    return bytes([2 * len(value)]) + value.encode()


def long(value: int) -> bytes:
    """Return a number of at least 0 in Avro: zigzag, seven bits in a byte."""
    rest, found = 2 * value, b""
    while rest > 127:
        rest, found = rest >> 7, found + bytes([rest & 127 | 128])
    return found + bytes([rest])


def avro(schema_id: int, rest: bytes = b"") -> Callable[[str], bytes]:
    return lambda name: header(schema_id) + text(name) + rest


def one_more(field: str, kind: str) -> dict[str, str]:
    """Return the changes that give `hits` one more field; `kind` is TEXT or MAYBE."""
    return {
        '"id string, user string"': f'"id string, user string, {field} string"',
        "schema(id=TEXT, user=MAYBE)\n": f"schema(id=TEXT, user=MAYBE, {field}={kind})\n",
        'selectExpr("id", ': f'selectExpr("id", "\'red\' as {field}", ',
    }


def test_each_avro_record_arrives_once_while_its_schema_evolves(
    lab: Lab, schemas: Registry, tmp_path: Path
) -> None:
    old = schemas.register("raw-value", schema(id=TEXT))
    release, sender = published_release(lab), Sender(lab, GARBAGE)
    start_each(lab, release)
    sender.send(200, avro(old))
    sender.send_garbage()
    until("the first records are stored", is_complete(lab, sender), seconds=420)

    kill_each(lab, release, lambda: sender.send(70, avro(old)))
    until("the records after the kills are stored", is_complete(lab, sender))

    lab.kill_executor("entry", 2)
    sender.send(40, avro(old))
    until("the records after the executor's kill are stored", is_complete(lab, sender))

    evolved = schemas.register("raw-value", schema(id=TEXT, extra={"type": "int", "default": 0}, user=MAYBE))
    sender.send(100, avro(evolved, b"\x54" + b"\x02" + text("anna")))
    sender.send(40, avro(old))  # the executor of this incarnation knows both schemas from here on
    until("records of the new schema are stored", is_complete(lab, sender))
    assert lab.query("select count(*) from stored where \"user\" = 'anna'") == [(100,)]

    # the registry hangs: what is known flows, a record of a new schema waits and is not lost
    newest = schemas.register("raw-value", schema(id=TEXT, more=MAYBE, user=MAYBE))
    schemas.process.send_signal(signal.SIGSTOP)
    try:
        sender.send(100, avro(old))
        until("records of known schemas are stored", is_complete(lab, sender))
        sender.send(4, avro(newest, b"\x00\x00"))
        until("the executor says what it waits for", lambda: f"schema id {newest}" in executor_log(lab, 2))
        assert len(stored(lab)) == len(sender.ids) - 4
    finally:
        schemas.process.send_signal(signal.SIGCONT)
    until("the records that waited are stored", is_complete(lab, sender))

    # the pipeline's own schema evolves: published with a new id, and taken over with a hand-over
    versions = schemas.ask("/subjects/hits-value/versions")
    second = publish(lab, tmp_path / "second", avro_pipeline, one_more("team", "MAYBE"))
    assert second.returncode == 0, second.stdout + second.stderr
    assert len(schemas.ask("/subjects/hits-value/versions")) == len(versions) + 1
    hand_over(lab, "entry", 2, 3)
    sender.send(100, avro(old))
    until("records of the new release are stored by the old one", is_complete(lab, sender))
    for tier in ("store", "count"):
        hand_over(lab, tier, 2, 3)
        sender.send(40, avro(old))
    until("records of the new release are stored by itself", is_complete(lab, sender))

    # an incompatible schema is refused before anything changes
    third = publish(lab, tmp_path / "third", avro_pipeline, one_more("must", "TEXT"))
    assert third.returncode == 1, third.stdout
    assert "hits-value: the new field must has no default" in third.stderr
    assert "nothing was published" in third.stderr
    assert re.search(r"release (\S+) is new", second.stdout)[1] == published_release(lab)  # type: ignore[index]
    assert len(schemas.ask("/subjects/hits-value/versions")) == len(versions) + 1

    assert_counted(lab, sender, anna=100)
    _assert_changes(lab, schemas)
    reasons = quarantined(lab)
    assert set(reasons) == set(GARBAGE), "each record that is no Avro is kept, byte for byte"
    assert "does not begin with a byte 0 and the id of a schema" in reasons[b"{}"]
    assert "has no schema with the id 20000" in reasons[GARBAGE[1]]


def _assert_changes(lab: Lab, schemas: Registry) -> None:
    """Assert that the stream has each change of a count once, and the last ones."""
    counts = [value for value, _ in records(lab, "counts")]
    assert len(counts) == len(set(counts)), "each change of a count is in its stream once"
    schema_id = schemas.ask("/subjects/counts-value/versions/1")["id"]
    last = {header(schema_id) + b"\x02" + text(user) + long(hits) for user, hits in counted(lab).items()}
    assert last <= set(counts), "the stream has the last counts"


def test_a_transform_reads_avro_from_bytes_though_its_tier_dies_and_moves(lab: Lab) -> None:
    """The records have no id of a schema, so Spark's `from_avro` reads them."""
    release, producer = published_release(lab), Producer({"bootstrap.servers": lab.endpoints.kafka})
    ids: list[str] = []

    def send() -> None:
        for number in range(len(ids), len(ids) + 100):
            ids.append(f"bare-{number}")
            producer.produce("bare", text(ids[-1]) + b"\x00", partition=number % 4)
        assert producer.flush(60) == 0

    def is_read() -> bool:
        return len(lab.query("select id from read")) >= len(ids)

    lab.start_owner("read", 1, "h1", release=release)
    send()
    until("the first records are read", is_read)
    lab.driver("read", 1).kill()
    send()
    lab.start_owner("read", 2, "h1", release=release)
    lab.stop("read", 1)
    until("the records after the kill are read", is_read)
    lab.prepare("read", 2, 3, "h3", release=release)
    send()
    lab.hand_over("read", 2, 3)
    send()
    until("the records after the handover are read", is_read)
    assert sorted(row[0] for row in lab.query("select id from read")) == sorted(ids)
    lab.stop("read", 3)


def executor_log(lab: Lab, number: int) -> str:
    files = (lab.home / "units").glob(f"slot-entry-{number}-0/work/*/*/stderr")
    return "".join(file.read_text() for file in files)
