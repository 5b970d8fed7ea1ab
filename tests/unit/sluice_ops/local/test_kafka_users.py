"""The embedded Kafka's users: passwords made once, in private, and a broker that is told of nobody but its admin."""

import stat
from dataclasses import replace

import pytest

from sluice_ops.local.layout import Layout
from sluice_ops.local.services import kafka, kafka_users
from sluice_ops.model.kafka_access import User
from sluice_ops.site.brokers import brokers, with_user
from sluice_ops.site.installation import PlatformError

RUNS = {"kafka": {"statename": "RUNNING"}}


def password(where: Layout, user: User) -> str:
    return str(brokers(with_user(kafka_users.address(where), user)).client["sasl.password"])


def test_each_has_a_password_that_stays_in_a_file_of_its_owners_alone(where: Layout) -> None:
    where = replace(where, home=where.home / "a home+")
    made = {user: password(where, user) for user in User}
    assert len(set(made.values())) == len(User)
    assert {user: password(where, user) for user in User} == made
    assert {stat.S_IMODE(path.stat().st_mode) for path in where.kafka_users.iterdir()} == {0o600}
    assert stat.S_IMODE(where.kafka_users.stat().st_mode) == 0o700
    assert not any(secret in kafka_users.address(where) for secret in made.values())


def test_a_home_whose_passwords_clients_cannot_read_is_refused(
    where: Layout,
) -> None:
    with pytest.raises(PlatformError, match="set SLUICE_HOME to a folder without"):
        kafka_users.address(replace(where, home=where.home / "{here}"))


def test_the_broker_is_told_of_its_admin_alone_and_asks_everybody(where: Layout) -> None:
    said = kafka.properties(where, users=True)
    assert f'user_admin="{where.secrets().kafka}"' in said
    assert not any(password(where, user) in said for user in User)
    assert "PLAINTEXT://" not in said.replace("SASL_PLAINTEXT://", "")
    keys = [line.partition("=")[0] for line in said.splitlines()]
    assert len(keys) == len(set(keys))


def test_parts_alone_ask_for_no_user(where: Layout) -> None:
    assert "sasl" not in kafka.properties(where, users=False).lower()
    assert not where.kafka_users.exists()


@pytest.mark.parametrize("users", [True, False])
def test_a_broker_that_runs_stays_as_it_was_started(where: Layout, *, users: bool) -> None:
    (where.conf / "kafka.properties").write_text(kafka.properties(where, users=users))
    assert kafka.asks_for_users(where, RUNS, otherwise=not users) == users
    assert (
        kafka.asks_for_users(where, RUNS | {"kafka": {"statename": "EXITED"}}, otherwise=not users) != users
    )
    assert kafka.asks_for_users(where, {}, otherwise=not users) != users
