"""Check that this host reaches the services of the endpoints file, and that its agent runs."""

import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress

import psycopg
from kazoo.handlers.threading import KazooTimeoutError

from sluice_ops.channel.client import Channel, ChannelAwayError
from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.model import paths
from sluice_ops.model.access import Credential
from sluice_ops.model.assignment import Observed
from sluice_ops.model.ids import HostName
from sluice_ops.model.wording import page

SECONDS = 3.0
"""Limit for a service to answer."""
CLOCK_SECONDS = 5.0
"""How far a host's clock may be from PostgreSQL's."""
ADVICE = (
    "start the service, open the network from this host to it, or correct its address in the endpoints file"
)


def check_zookeeper(address: str, credential: Credential | None, host: HostName) -> Iterator[Finding]:
    """Check that ZooKeeper answers, that the pipeline's chroot exists, and that the agent runs."""
    channel = Channel(address, credential)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="No chroot path exists")  # a finding says so
            channel.kazoo.start(timeout=SECONDS)
        if channel.exists("/"):
            yield Finding("zookeeper", Verdict.OK, f"{address} answers")
            yield _agent(channel, host)
        else:
            sentence = f"{address} answers, but ZooKeeper has no such chroot"
            advice = (
                "correct `zookeeper` in the endpoints file, or create the chroot: "
                f"see {page('Hosts', 'Start')}"
            )
            yield Finding("zookeeper", Verdict.BAD, sentence, advice)
    except (KazooTimeoutError, ChannelAwayError) as error:
        yield Finding("zookeeper", Verdict.BAD, f"{address} does not answer: {error}", ADVICE)
    finally:
        channel.stop()


def _agent(channel: Channel, host: HostName) -> Finding:
    observed = channel.read(paths.observed(host), Observed)
    if observed is None or not channel.exists(paths.live(host)):
        return Finding(
            "agent",
            Verdict.NOTE,
            f"no agent of {host} is connected to ZooKeeper",
            f"start it: systemctl start sluice-agent@{host}",
        )
    limits = observed.value.limits
    if not limits.startswith("cgroup"):
        return Finding(
            "agent",
            Verdict.NOTE,
            f"the agent of {host} runs; its slots have no limits: {limits}",
            f"give the agent a control group: see {page('Limits', 'Control groups')}",
        )
    return Finding("agent", Verdict.OK, f"the agent of {host} runs; its slots are limited by {limits}")


def check_servers(name: str, addresses: str) -> Iterator[Finding]:
    """Check servers that replace each other, such as brokers.

    While one of them answers, the silent ones are a note.
    """
    errors = {address: _connection_error(address) for address in addresses.split(",")}
    answering = [address for address, error in errors.items() if error is None]
    if answering:
        yield Finding(name, Verdict.OK, f"{', '.join(answering)}: answers")
    for address, error in errors.items():
        if error is not None:
            yield Finding(
                name,
                Verdict.NOTE if answering else Verdict.BAD,
                f"{address} does not answer: {error}",
                ADVICE,
            )


def check_postgres(url: str) -> Finding:
    """Check that PostgreSQL answers and accepts the URL's user and password."""
    try:
        psycopg.connect(url, connect_timeout=int(SECONDS)).close()
    except psycopg.Error as error:
        return Finding("postgres", Verdict.BAD, " ".join(str(error).split()), ADVICE)
    return Finding("postgres", Verdict.OK, "PostgreSQL accepts the drivers' user and password")


def check_clock(url: str) -> Iterator[Finding]:
    """Compare this host's clock with PostgreSQL's; no finding if PostgreSQL does not answer."""
    with suppress(psycopg.Error), psycopg.connect(url, connect_timeout=int(SECONDS)) as connection:
        asked = time.time()
        answer = connection.execute("select extract(epoch from clock_timestamp())::float8").fetchone()
        if answer is not None:
            yield clock_finding(asked, float(answer[0]), time.time())


def clock_finding(asked: float, theirs: float, heard: float) -> Finding:
    """Judge this host's clock by the time that PostgreSQL told between `asked` and `heard`."""
    ahead, behind = asked - theirs, theirs - heard
    if max(ahead, behind) <= CLOCK_SECONDS:
        sentence = f"this host's clock is within {CLOCK_SECONDS:g} s of PostgreSQL's"
        return Finding("clock", Verdict.OK, sentence)
    by = f"{ahead:.0f} s ahead of" if ahead > 0 else f"{behind:.0f} s behind"
    advice = "let a service such as chrony set the clock of every machine"
    return Finding("clock", Verdict.BAD, f"this host's clock is {by} PostgreSQL's", advice)


def _connection_error(address: str) -> str | None:
    """Return the error of a TCP connection to `host:port`; None if the server accepts it."""
    name, _, port = address.rpartition(":")
    try:
        socket.create_connection((name, int(port)), timeout=SECONDS).close()
    except (OSError, ValueError) as error:
        return str(error)
    return None
