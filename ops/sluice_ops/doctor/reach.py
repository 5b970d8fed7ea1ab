"""Whether the services that the endpoints file names can be reached from here, and whether an agent serves a host. For `host_doctor`."""

import socket
import warnings
from collections.abc import Iterator

import psycopg
from kazoo.handlers.threading import KazooTimeoutError

from sluice_ops.channel.client import Channel, ChannelAwayError
from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.model import paths
from sluice_ops.model.access import Credential
from sluice_ops.model.assignment import Observed
from sluice_ops.model.ids import HostName

SECONDS = 3.0
"""How long a service may take to answer."""
ADVICE = "start it, open the way to it from this host, or correct the endpoints file"


def channel(address: str, credential: Credential | None, host: HostName) -> Iterator[Finding]:
    """Look for ZooKeeper, the pipeline's chroot in it, and the host's agent."""
    link = Channel(address, credential)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="No chroot path exists")  # it is a finding
            link.kazoo.start(timeout=SECONDS)
        if link.exists("/"):
            yield Finding("zookeeper", Verdict.OK, f"{address} answers")
            yield _agent(link, host)
        else:
            advice = "make it, as docs/hosts.md says, or correct `zookeeper` in the endpoints file"
            yield Finding("zookeeper", Verdict.BAD, f"{address} answers, and there is no such chroot", advice)
    except (KazooTimeoutError, ChannelAwayError) as error:
        yield Finding("zookeeper", Verdict.BAD, f"{address} does not answer: {error}", ADVICE)
    finally:
        link.stop()


def _agent(link: Channel, host: HostName) -> Finding:
    seen = link.read(paths.observed(host), Observed)
    if seen is None or not link.exists(paths.live(host)):
        return Finding(
            "agent", Verdict.NOTE, "none serves this host now", f"systemctl start sluice-agent@{host}"
        )
    if not seen.value.limits.startswith("cgroup"):
        return Finding(
            "agent",
            Verdict.NOTE,
            f"its slots have no limits: {seen.value.limits}",
            "docs/limits.md, Control groups",
        )
    return Finding("agent", Verdict.OK, f"it serves this host; its slots are limited by {seen.value.limits}")


def any_of(thing: str, addresses: str) -> Iterator[Finding]:
    """Look for servers that stand by for each other: as long as one answers, the others are a note."""
    reasons = {address: _reason(address) for address in addresses.split(",")}
    answering = [address for address, reason in reasons.items() if reason is None]
    if answering:
        yield Finding(thing, Verdict.OK, f"{', '.join(answering)}: answers")
    for address, reason in reasons.items():
        if reason is not None:
            yield Finding(
                thing,
                Verdict.NOTE if answering else Verdict.BAD,
                f"{address} does not answer: {reason}",
                ADVICE,
            )


def database(url: str) -> Finding:
    """Look whether PostgreSQL takes the user and the password."""
    try:
        psycopg.connect(url, connect_timeout=int(SECONDS)).close()
    except psycopg.Error as error:
        return Finding("postgres", Verdict.BAD, " ".join(str(error).split()), ADVICE)
    return Finding("postgres", Verdict.OK, "takes the user and the password that drivers have here")


def _reason(address: str) -> str | None:
    name, _, port = address.rpartition(":")
    try:
        socket.create_connection((name, int(port)), timeout=SECONDS).close()
    except (OSError, ValueError) as error:
        return str(error)
    return None
