"""Records in Protobuf with a real schema registry, on real Kafka: a driver and an executor are
killed, a tier is handed over, and messages evolve, while each record reaches the table once.
"""

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice import Protobuf
from sluice.api.formats import header, registration
from tests.integration.sluice import protobuf_pipeline
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
)
from tests.integration.sluice.protobuf_pipeline import hit
from tests.lab import Lab, until
from tests.schema_registry import Registry, registry

PIPELINE_MODULE = "tests.integration.sluice.protobuf_pipeline"
OLD, SENT, NEW = hit("id"), hit("id", "user", "extra"), hit("id", "user", "team")
COUNT = hit("user", "hits")
UNKNOWN = 20_000
"""A schema id that nobody registered; the declared message reads such records."""
GARBAGE = (b"{}", header(UNKNOWN) + b"\x02\x02", header(UNKNOWN) + b"\0\x0a\x05a", b"\xff\xfe binary", b"")
"""No Protobuf; another message; cut off; no Protobuf; nothing."""

pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def site(schemas: Registry) -> str:
    return f"hosts: []\nschema_registry: {schemas.address}\n"


def sent(message: Any, schema_id: int, **more: Any) -> Callable[[str], bytes]:
    return lambda name: header(schema_id) + b"\0" + message(id=name, **more).SerializeToString()


def test_each_message_arrives_once_while_its_schema_evolves(
    lab: Lab, schemas: Registry, tmp_path: Path
) -> None:
    old = schemas.ask("/subjects/raw-value/versions", registration(Protobuf(OLD)))["id"]
    release, sender = published_release(lab), Sender(lab, GARBAGE)
    start_each(lab, release)
    sender.send(200, sent(OLD, old))
    sender.send_garbage()
    until("the first records are stored", is_complete(lab, sender), seconds=420)

    kill_each(lab, release, lambda: sender.send(70, sent(OLD, old)))
    until("the records after the kills are stored", is_complete(lab, sender))

    lab.kill_executor("entry", 2)
    sender.send(40, sent(OLD, old))
    until("the records after the executor's kill are stored", is_complete(lab, sender))

    # a reader never asks the registry: records of any schema flow while the registry hangs
    schemas.process.send_signal(signal.SIGSTOP)
    try:
        sender.send(100, sent(SENT, UNKNOWN, user="anna", extra="x"))
        until("records of a new schema are stored", is_complete(lab, sender))
    finally:
        schemas.process.send_signal(signal.SIGCONT)
    assert lab.query("select count(*) from stored where \"user\" = 'anna'") == [(100,)]
    assert lab.query('select count(*) from stored where "user" is null') == [(450,)]

    # the pipeline's own message evolves: published with a new id, and taken over with a hand-over
    second = publish(
        lab,
        tmp_path / "second",
        protobuf_pipeline,
        {
            '"id string, user string"': '"id string, user string, team string"',
            ', hit("id", "user")': ', hit("id", "user", "team")',
            'raw.selectExpr("id", ': 'raw.selectExpr("id", "\'red\' as team", ',
        },
    )
    assert second.returncode == 0, second.stdout + second.stderr
    versions = schemas.ask("/subjects/hits-value/versions")
    assert len(versions) == 2
    hand_over(lab, "entry", 2, 3)
    sender.send(100, sent(OLD, old))
    until("records of the new release are stored by the old one", is_complete(lab, sender))
    for tier in ("store", "count"):
        hand_over(lab, tier, 2, 3)
        sender.send(40, sent(OLD, old))
    until("records of the new release are stored by itself", is_complete(lab, sender))

    # an incompatible message is refused before anything changes
    third = publish(
        lab,
        tmp_path / "third",
        protobuf_pipeline,
        {
            '"id string, user string"': '"id string, person string"',
            ', hit("id", "user")': ', hit("id", "person")',
            'raw.selectExpr("id", "user"': 'raw.selectExpr("id", "user as person"',
            'hits.selectExpr("id", "user"': 'hits.selectExpr("id", "person as user"',
        },
    )
    assert third.returncode == 1, third.stdout
    assert "the registry refuses its Protobuf message for the subject hits-value" in third.stderr
    assert "the field 2 of Hit is string person, and was string user" in third.stderr
    assert "the field Hit.team is gone; reserve its name and its number 3" in third.stderr
    assert "nothing was published" in third.stderr
    assert re.search(r"release (\S+) is new", second.stdout)[1] == published_release(lab)  # type: ignore[index]
    assert schemas.ask("/subjects/hits-value/versions") == versions

    assert_counted(lab, sender, anna=100)
    ids = [schemas.ask(f"/subjects/hits-value/versions/{version}")["id"] for version in versions]
    written = [value for value, _ in records(lab, "hits")]
    assert {value[:6] for value in written} == {header(schema_id) + b"\0" for schema_id in ids}
    assert {NEW.FromString(value[6:]).id for value in written} == set(sender.ids)
    _assert_changes(lab)
    reasons = quarantined(lab)
    assert set(reasons) == set(GARBAGE), "each record that is no such message is kept, byte for byte"
    assert "does not begin with a byte 0 and the id of a schema" in reasons[b"{}"]
    assert "is of the message [1] of its schema" in reasons[GARBAGE[1]]
    assert "is not a valid hits.Hit" in reasons[GARBAGE[2]]


def _assert_changes(lab: Lab) -> None:
    """Assert that the stream has each change of a count once, and the last ones."""
    messages = [COUNT.FromString(value[6:]) for value, _ in records(lab, "counts")]
    last = {message.user: int(message.hits) for message in messages}
    assert last == counted(lab), "the stream of counts ends with the table"
    assert len(messages) == len({(message.user, message.hits) for message in messages})
