"""The embedded Kafka comes to users: one that was started without keeps its records, and one that runs is left as it is."""

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
from sluice_ops.site.installation import CHECKOUT
from tests.lab import free_base, until
from tests.tls_broker import produce_error

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
HITS = declarations.load("hits")


@pytest.fixture
def where(tmp_path: Path) -> Iterator[Layout]:
    found = Layout(home=tmp_path / "home", ports=Ports.above(free_base()), site=CHECKOUT / "site.yaml")
    yield found
    parts(found, "down")


def parts(where: Layout, *words: str) -> None:
    """Start parts alone, which ask for no user, or stop what runs."""
    env = {**os.environ, "SLUICE_HOME": str(where.home), "SLUICE_PORT_BASE": str(where.ports.zookeeper - 1)}
    subprocess.run(
        [sys.executable, "-m", "sluice_ops.local.parts", *words], env=env, cwd=CHECKOUT, check=True
    )


def up_with_users(where: Layout) -> str:
    """Do of `sluice up` what is Kafka's; return what became of it."""
    supervisor = Supervisor(where)
    users = kafka.asks_for_users(where, supervisor.states(), otherwise=True)
    endpoints_file.write(where, "hits", users=users, roles=False)
    service = kafka.service(where, users=users)
    supervisor.launch([service])
    timings = run([fetch_step(where), *steps_of(where, supervisor, [service])], print)
    return next(each.said for each in timings if each.name == "kafka")


def known(where: Layout) -> Endpoints:
    return Endpoints.model_validate_json(where.endpoints.read_text())


def test_a_broker_from_an_older_version_keeps_records_and_gains_users(where: Layout) -> None:
    parts(where, "up", "--only", "kafka")
    plain = known(where).kafka
    topics.create(plain, HITS, 2, ONE_COPY)
    assert produce_error(brokers(plain).client, b"x") == ""

    assert up_with_users(where) == "already running"
    assert known(where).kafka == plain, "who speaks to it goes on"
    assert produce_error(brokers(plain).client, b"x") == ""
    parts(where, "down")

    assert up_with_users(where) == "started"
    mine = {user: known(where).kafka_as(user) for user in User}
    assert produce_error(brokers(plain).client, b"x") == "_MSG_TIMED_OUT"
    assert produce_error(brokers(mine[User.OUTSIDE]).client, b"x") == "TOPIC_AUTHORIZATION_FAILED"
    assert topics.create(mine[User.PUBLISHER], HITS, 2, ONE_COPY) == []
    assert grants.grant(mine[User.PUBLISHER], HITS) == grants.DONE
    until("the lists hold", lambda: produce_error(brokers(mine[User.OUTSIDE]).client, b"x") == "", seconds=30)
    with closing(Streams(mine[User.AUDIT])) as streams:
        assert sum(streams.bounds(["raw"]).ends.values()) == 3

    parts(where, "up", "--only", "kafka")
    assert known(where).kafka_as(User.OUTSIDE) == mine[User.OUTSIDE], "it runs, and goes on as it was started"
    assert produce_error(brokers(mine[User.OUTSIDE]).client, b"x") == ""
    assert up_with_users(where) == "already running"
    assert produce_error(brokers(mine[User.OUTSIDE]).client, b"x") == ""
