"""Kafka's address in the endpoints file: how it is parsed, and the settings that come of it."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from sluice_ops.model.kafka_access import User
from sluice_ops.site.brokers import Brokers, BrokersError, brokers, with_user
from sluice_ops.site.endpoints import Endpoints


def test_a_plain_address_stays_as_it_is() -> None:
    parsed = brokers("k1:9092,k2:9092")
    assert parsed.client == {"bootstrap.servers": "k1:9092,k2:9092"}
    assert parsed.spark == {"kafka.bootstrap.servers": "k1:9092,k2:9092"}


def test_with_tls_both_clients_get_the_ca_and_their_certificate() -> None:
    parsed = brokers("ssl://k1:9093,k2:9093?ca=/c/ca.pem&certificate=/c/h1.pem")
    assert parsed.client == {
        "bootstrap.servers": "k1:9093,k2:9093",
        "security.protocol": "SSL",
        "ssl.ca.location": "/c/ca.pem",
        "ssl.certificate.location": "/c/h1.pem",
        "ssl.key.location": "/c/h1.pem",
    }
    assert parsed.spark["kafka.security.protocol"] == "SSL"
    assert parsed.spark["kafka.ssl.keystore.location"] == "/c/h1.pem"
    assert "ssl.key.location" not in brokers("ssl://k1:9093?ca=/c/ca.pem").client


@pytest.fixture
def driver(tmp_path: Path) -> Brokers:
    """An address with users, for the user `driver`, whose password file exists."""
    file = tmp_path / "driver.properties"
    file.touch(mode=0o600)
    file.write_text("# Kafka's\npassword=s3cr-et=\n")
    return brokers(with_user(f"ssl://k1:9093?ca=/c/ca.pem&users={tmp_path}", User.DRIVER))


def test_librdkafka_gets_the_password_and_spark_only_the_file(driver: Brokers) -> None:
    assert driver.client == {
        "bootstrap.servers": "k1:9093",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/c/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "driver",
        "sasl.password": "s3cr-et=",
    }
    assert driver.spark["kafka.security.protocol"] == "SASL_SSL"
    assert (
        f'username="driver" password="${{file:{driver.password_file}:password}}";'
        in driver.spark["kafka.sasl.jaas.config"]
    )
    assert "s3cr-et" not in str(driver.spark)
    assert "s3cr-et" not in repr(driver)


def test_with_users_and_without_tls_both_clients_use_sasl(driver: Brokers) -> None:
    parsed = brokers(f"sasl://k1:9092?users={driver.users}&user=driver")
    assert parsed.client == {
        "bootstrap.servers": "k1:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "driver",
        "sasl.password": "s3cr-et=",
    }
    assert parsed.spark["kafka.security.protocol"] == "SASL_PLAINTEXT"
    assert "s3cr-et" not in repr(parsed.spark)


def test_without_users_in_the_address_no_user_is_added() -> None:
    for address in ("k1:9092", "ssl://k1:9093?ca=/c/ca.pem"):
        assert with_user(address, User.AUDIT) == address
        assert brokers(address).password_file is None


def test_an_address_with_users_must_name_the_user() -> None:
    with pytest.raises(BrokersError, match="asks for a user, and the address names none: add &user=NAME"):
        _ = brokers("ssl://k1:9093?ca=/c/ca.pem&users=/c/kafka").client


@pytest.mark.parametrize(
    "content", ["", "pass word=x", "password=a b", 'password="x"', "password=a\\b", "password=a\npassword=b"]
)
def test_a_password_that_both_clients_read_differently_is_refused(driver: Brokers, content: str) -> None:
    assert driver.password_file is not None
    driver.password_file.write_text(content)
    with pytest.raises(BrokersError, match="must have exactly one line password="):
        _ = driver.client


def test_a_missing_or_readable_password_file_is_refused_by_name(driver: Brokers) -> None:
    assert driver.password_file is not None
    driver.password_file.chmod(0o644)
    with pytest.raises(BrokersError, match=r"chmod o= .*/driver\.properties"):
        _ = driver.client
    driver.password_file.unlink()
    with pytest.raises(BrokersError, match=r"driver\.properties does not exist, or user \d+ cannot read it"):
        _ = driver.client


@pytest.mark.parametrize(
    "address",
    [
        "ssl://k1:9093",
        "ssl://?ca=x",
        "ssl://k1:9093?ca=x&password=y",
        "ssl://k1:9093?ca=/c&users=here",
        "ssl://k1:9093?ca=/c&users=/a:b",
        "sasl://k1:9092",
        "sasl://k1:9092?users=/a&ca=/c",
        "tls://k1:9093?ca=/c",
    ],
)
def test_an_unusable_address_is_refused_with_the_correct_form(address: str) -> None:
    with pytest.raises(BrokersError, match="write it like"):
        brokers(address)
    other_endpoints = {
        "zookeeper": "z",
        "postgres": "p",
        "airflow": {"url": "u", "user": "u", "password": "p"},
        "spark": "s",
        "home": "/",
    }
    with pytest.raises(ValidationError, match="write it like"):
        Endpoints.model_validate({"kafka": address, **other_endpoints})


def test_kafkas_own_tools_get_the_names_of_java(driver: Brokers) -> None:
    assert driver.java_client == {
        "bootstrap.servers": "k1:9093",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/c/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="driver" password="s3cr-et=";',
    }
    assert brokers("k1:9092").java_client == {"bootstrap.servers": "k1:9092"}
