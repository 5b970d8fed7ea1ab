"""A Kafka broker of a test's own that serves with TLS, with what else the test wants of it."""

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


def answer(settings: dict[str, Any], value: bytes) -> str:
    """Put a record into `raw`; return what came of it: nothing, or the error's name."""
    said: list[str] = []
    producer = Producer({**settings, "message.timeout.ms": 5000, "log_level": 0})
    producer.produce(
        "raw", value, on_delivery=lambda error, _message: said.append("" if error is None else error.name())
    )
    producer.flush(20)
    return said[0]


@contextmanager
def serving(folder: Path, authority: Authority, protocol: str, more: str) -> Iterator[str]:
    """Start one in `folder` whose clients have to speak `protocol`; yield `host:port`."""
    ports = dict(zip(("kafka", "kafka_controller"), free_ports(2), strict=True))
    where = Layout(home=folder, ports=replace(Ports.above(LOWEST_BASE), **ports), site=ROOT / "site.yaml")
    where.make_folders()
    fetch_jars.fetch(where, threading.Event())
    server, _ = authority.sign("server")
    settings = (
        kafka.properties(where, users=False).replace("PLAINTEXT", protocol)
        + f"ssl.keystore.type=PEM\nssl.keystore.location={server}\nssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n"
        + f"listener.security.protocol.map={protocol}:{protocol},CONTROLLER:PLAINTEXT\n{more}"
    )
    service = kafka.service(where, users=False)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kafka, "properties", lambda _where, **_how: settings)
        service.prepare()
    with (folder / "kafka.log").open("w") as log:
        broker = subprocess.Popen(service.program.command, stdout=log, stderr=log)
    try:
        yield f"127.0.0.1:{where.ports.kafka}"
    finally:
        broker.terminate()
        broker.wait(60)
