"""How Kafka's address is read, and what is made of it."""

import pytest
from pydantic import ValidationError

from ops.brokers import BrokersError, brokers
from ops.endpoints import Endpoints


def test_a_plain_address_stays_as_it_is() -> None:
    found = brokers("k1:9092,k2:9092")
    assert found.client == {"bootstrap.servers": "k1:9092,k2:9092"}
    assert found.spark == {"kafka.bootstrap.servers": "k1:9092,k2:9092"}


def test_with_tls_both_are_told_whom_to_trust_and_who_they_are() -> None:
    found = brokers("ssl://k1:9093,k2:9093?ca=/c/ca.pem&certificate=/c/h1.pem")
    assert found.client == {
        "bootstrap.servers": "k1:9093,k2:9093",
        "security.protocol": "SSL",
        "ssl.ca.location": "/c/ca.pem",
        "ssl.certificate.location": "/c/h1.pem",
        "ssl.key.location": "/c/h1.pem",
    }
    assert found.spark["kafka.security.protocol"] == "SSL"
    assert found.spark["kafka.ssl.keystore.location"] == "/c/h1.pem"
    assert "ssl.key.location" not in brokers("ssl://k1:9093?ca=/c/ca.pem").client


@pytest.mark.parametrize("address", ["ssl://k1:9093", "ssl://?ca=x", "ssl://k1:9093?ca=x&password=y"])
def test_what_cannot_be_used_is_refused_with_how_to_write_it(address: str) -> None:
    with pytest.raises(BrokersError, match="write it like"):
        brokers(address)
    away = {"zookeeper": "z", "postgres": "p", "airflow": {"url": "u", "user": "u", "password": "p"}, "spark": "s", "home": "/"}
    with pytest.raises(ValidationError, match="write it like"):
        Endpoints.model_validate({"kafka": address, **away})
