"""A Kafka broker that serves with TLS and further settings of the test."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sluice_ops.local import fetch_jars
from sluice_ops.local.layout import LOWEST_BASE, Layout, Ports
from sluice_ops.local.services import kafka
from tests.authority import Authority
from tests.lab import ROOT, free_ports


def produce_error(settings: dict[str, Any], value: bytes) -> str:
    """Write a record to `raw`; return the error's name, or an empty string."""
    errors: list[str] = []
    producer = Producer({**settings, "message.timeout.ms": 5000, "log_level": 0})
    producer.produce(
        "raw", value, on_delivery=lambda error, _message: errors.append("" if error is None else error.name())
    )
    producer.flush(20)
    return errors[0]


@contextmanager
def tls_broker(folder: Path, authority: Authority, protocol: str, more: str) -> Iterator[str]:
    """Start a broker in `folder` for clients that speak `protocol`; yield `host:port`."""
    ports = dict(zip(("kafka", "kafka_controller"), free_ports(2), strict=True))
    layout = Layout(home=folder, ports=replace(Ports.above(LOWEST_BASE), **ports), site=ROOT / "site.yaml")
    layout.make_folders()
    fetch_jars.fetch(layout, threading.Event())
    server, _ = authority.sign("server")
    settings = (
        kafka.properties(layout, users=False).replace("PLAINTEXT", protocol)
        + f"ssl.keystore.type=PEM\nssl.keystore.location={server}\n"
        + f"ssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n"
        + f"listener.security.protocol.map={protocol}:{protocol},CONTROLLER:PLAINTEXT\n{more}"
    )
    service = kafka.service(layout, users=False)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(kafka, "properties", lambda _where, **_how: settings)
        service.prepare()
    with (folder / "kafka.log").open("w") as log:
        broker = subprocess.Popen(service.program.command, stdout=log, stderr=log)
    try:
        yield f"127.0.0.1:{layout.ports.kafka}"
    finally:
        broker.terminate()
        broker.wait(60)
