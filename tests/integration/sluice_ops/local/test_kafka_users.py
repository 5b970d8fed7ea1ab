"""The embedded Kafka gets users: a broker that was started without users keeps its records, and a
running one is unchanged.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sluice.api import declarations
from sluice.kafka import grants, topics
from sluice.kafka.reader import Streams
from sluice_ops.local.layout import Layout, Ports
from sluice_ops.local.parts import fetch_step
from sluice_ops.local.services import endpoints_file, kafka
from sluice_ops.local.start.starting import steps_of
from sluice_ops.local.start.steps import run
from sluice_ops.local.start.supervisord import Supervisor
from sluice_ops.model.kafka_access import ONE_COPY, User
from sluice_ops.site.brokers import brokers
from sluice_ops.site.endpoints import Endpoints
from tests.lab import ROOT, free_base, until
from tests.tls_broker import produce_error

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
HITS = declarations.load("hits")


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    new_layout = Layout(home=tmp_path / "home", ports=Ports.above(free_base()), site=ROOT / "site.yaml")
    yield new_layout
    parts(new_layout, "down")


def parts(layout: Layout, *words: str) -> None:
    """Start parts without users, or stop them."""
    env = {**os.environ, "SLUICE_HOME": str(layout.home), "SLUICE_PORT_BASE": str(layout.ports.zookeeper - 1)}
    subprocess.run([sys.executable, "-m", "sluice_ops.local.parts", *words], env=env, cwd=ROOT, check=True)


def up_with_users(layout: Layout) -> str:
    """Start Kafka as `sluice up` does; return the state that `up` reports for it."""
    supervisor = Supervisor(layout)
    users = kafka.asks_for_users(layout, supervisor.states(), otherwise=True)
    endpoints_file.write(layout, "hits", users=users, roles=False)
    service = kafka.service(layout, users=users)
    supervisor.launch([service])
    timings = run([fetch_step(layout), *steps_of(layout, supervisor, [service])], print)
    return next(timing.said for timing in timings if timing.name == "kafka")


def written_endpoints(layout: Layout) -> Endpoints:
    return Endpoints.model_validate_json(layout.endpoints.read_text())


def test_a_broker_from_an_older_version_keeps_records_and_gains_users(layout: Layout) -> None:
    parts(layout, "up", "--only", "kafka")
    plain = written_endpoints(layout).kafka
    topics.create(plain, HITS, 2, ONE_COPY)
    assert produce_error(brokers(plain).client, b"x") == ""

    assert up_with_users(layout) == "already running"
    assert written_endpoints(layout).kafka == plain, "running clients can continue"
    assert produce_error(brokers(plain).client, b"x") == ""
    parts(layout, "down")

    assert up_with_users(layout) == "started"
    addresses = {user: written_endpoints(layout).kafka_as(user) for user in User}
    assert produce_error(brokers(plain).client, b"x") == "_MSG_TIMED_OUT"
    assert produce_error(brokers(addresses[User.OUTSIDE]).client, b"x") == "TOPIC_AUTHORIZATION_FAILED"
    assert topics.create(addresses[User.PUBLISHER], HITS, 2, ONE_COPY) == []
    assert grants.grant(addresses[User.PUBLISHER], HITS) == grants.DONE
    until(
        "the access lists apply",
        lambda: produce_error(brokers(addresses[User.OUTSIDE]).client, b"x") == "",
        seconds=30,
    )
    with closing(Streams(addresses[User.AUDIT])) as streams:
        assert sum(streams.bounds(["raw"]).ends.values()) == 3

    parts(layout, "up", "--only", "kafka")
    assert written_endpoints(layout).kafka_as(User.OUTSIDE) == addresses[User.OUTSIDE], (
        "the running broker keeps its users"
    )
    assert produce_error(brokers(addresses[User.OUTSIDE]).client, b"x") == ""
    assert up_with_users(layout) == "already running"
    assert produce_error(brokers(addresses[User.OUTSIDE]).client, b"x") == ""
