"""The embedded Kafka's users: passwords are created once, in private files, and the broker's
settings hold only the admin's password.
"""

import stat
from dataclasses import replace

import pytest

from sluice_ops.local.layout import Layout
from sluice_ops.local.services import kafka, kafka_users
from sluice_ops.model.kafka_access import User
from sluice_ops.site.brokers import brokers, with_user
from sluice_ops.site.installation import PlatformError

RUNS = {"kafka": {"statename": "RUNNING"}}


def password(layout: Layout, user: User) -> str:
    return str(brokers(with_user(kafka_users.address(layout), user)).client["sasl.password"])


def test_each_user_has_a_lasting_password_in_a_private_file(layout: Layout) -> None:
    layout = replace(layout, home=layout.home / "a home+")
    passwords = {user: password(layout, user) for user in User}
    assert len(set(passwords.values())) == len(User)
    assert {user: password(layout, user) for user in User} == passwords
    assert {stat.S_IMODE(path.stat().st_mode) for path in layout.kafka_users.iterdir()} == {0o600}
    assert stat.S_IMODE(layout.kafka_users.stat().st_mode) == 0o700
    assert not any(secret in kafka_users.address(layout) for secret in passwords.values())


def test_a_home_whose_passwords_clients_cannot_read_is_refused(
    layout: Layout,
) -> None:
    with pytest.raises(PlatformError, match="set SLUICE_HOME to a folder without"):
        kafka_users.address(replace(layout, home=layout.home / "{here}"))


def test_the_broker_knows_only_its_admin_and_authenticates_all_clients(layout: Layout) -> None:
    text = kafka.properties(layout, users=True)
    assert f'user_admin="{layout.secrets().kafka}"' in text
    assert not any(password(layout, user) in text for user in User)
    assert "PLAINTEXT://" not in text.replace("SASL_PLAINTEXT://", "")
    keys = [line.partition("=")[0] for line in text.splitlines()]
    assert len(keys) == len(set(keys))


def test_without_users_the_broker_authenticates_no_client(layout: Layout) -> None:
    assert "sasl" not in kafka.properties(layout, users=False).lower()
    assert not layout.kafka_users.exists()


@pytest.mark.parametrize("users", [True, False])
def test_a_running_broker_keeps_its_setting_for_users(layout: Layout, *, users: bool) -> None:
    (layout.conf / "kafka.properties").write_text(kafka.properties(layout, users=users))
    assert kafka.asks_for_users(layout, RUNS, otherwise=not users) == users
    assert (
        kafka.asks_for_users(layout, RUNS | {"kafka": {"statename": "EXITED"}}, otherwise=not users) != users
    )
    assert kafka.asks_for_users(layout, {}, otherwise=not users) != users
