"""A person names a tier, a host, a unit or the controller, and gets its log from its host."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from simulation.memory import MemoryChannel

from sluice_ops.model import paths
from sluice_ops.model.alert import Alert, AlertRecord, Severity
from sluice_ops.model.assignment import UnitKind
from sluice_ops.model.ids import HostName, Incarnation
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Placement
from sluice_ops.model.logs import LogPart, LogRequest
from sluice_ops.operations.log_requests import LogServer
from sluice_ops.queries.logs import (
    LogAwayError,
    Place,
    UnknownLogError,
    find_log,
    log_names,
    read_log,
    read_log_after,
)
from sluice_ops.snapshot.view import View
from tests.unit.sluice_ops.cli.test_describe import ENRICH, host, unit, view
from tests.unit.sluice_ops.log_serving import serving

H1, H2, H3 = HostName("h1"), HostName("h2"), HostName("h3")


def seen() -> View:
    driver, slots = unit(UnitKind.DRIVER), [unit(UnitKind.SLOT, number) for number in (0, 1)]
    now = view(host("h1", driver), host("h2", *slots), host("h3", slots[1]))
    spec = IncarnationSpec(
        tier=ENRICH,
        incarnation=Incarnation(1),
        placement=Placement(driver=H3, slots=(H1, H2)),
        reason="",
        created_at=1.0,
    )
    tier = dataclasses.replace(now.tiers[ENRICH], incarnations={Incarnation(1): spec})
    return dataclasses.replace(now, tiers={ENRICH: tier})


@pytest.mark.parametrize(
    ("name", "on", "place"),
    [
        ("enrich", None, Place(H1, log="driver-enrich-2")),
        ("h2", None, Place(H2)),
        ("slot-enrich-2-0", None, Place(H2, log="slot-enrich-2-0")),
        ("slot-enrich-2-0/executor", None, Place(H2, log="slot-enrich-2-0/executor")),
        ("h2/slot-enrich-2-0/executor", None, Place(H2, log="slot-enrich-2-0/executor")),
        ("slot-enrich-2-1", "h3", Place(H3, log="slot-enrich-2-1")),
        ("driver-enrich-1", None, Place(H3, log="driver-enrich-1")),
        ("slot-enrich-1-1", None, Place(H2, log="slot-enrich-1-1")),
        ("controller", None, Place(controller="c")),
    ],
)
def test_each_name_has_one_place(name: str, on: str | None, place: Place) -> None:
    assert find_log(seen(), name, on) == place


@pytest.mark.parametrize(
    ("name", "on", "message"),
    [
        ("enrihc", None, "there is no tier, host or unit 'enrihc'; tiers: enrich; hosts: h1, h2, h3"),
        ("slot-enrich-2-1", None, "is on h2, h3; choose one: sluice logs slot-enrich-2-1 --host h2"),
        ("driver-enrich-7", None, "there is no tier, host or unit"),
        ("slot-enrich-1-9", None, "there is no tier, host or unit"),
        ("enrich", "h9", "there is no host 'h9'; hosts: h1, h2, h3"),
    ],
)
def test_a_name_without_a_place_is_refused(name: str, on: str | None, message: str) -> None:
    with pytest.raises(UnknownLogError, match=message):
        find_log(seen(), name, on)


def test_a_tier_that_has_not_run_says_how_to_start_it() -> None:
    now = seen()
    tier = dataclasses.replace(now.tiers[ENRICH], owner=OwnerRecord(), incarnations={})
    with pytest.raises(UnknownLogError, match="has not run yet: sluice start enrich"):
        find_log(dataclasses.replace(now, tiers={ENRICH: tier}), "enrich")


def test_before_a_controller_has_reported_none_can_be_asked() -> None:
    with pytest.raises(UnknownLogError, match="no controller has reported yet"):
        find_log(dataclasses.replace(seen(), status=None), "controller")


def test_every_listed_name_has_a_place() -> None:
    names = log_names(seen())
    assert names[:4] == ["controller", "h1", "h2", "h3"]
    assert "h3/slot-enrich-2-1" in names
    assert [find_log(seen(), name).name for name in names] == names


class Channel(MemoryChannel):
    connected = True

    def on_change(self, _follower: Callable[[str | None], None]) -> None:
        """Tests look by themselves."""


@contextmanager
def agent(channel: Channel, read: Callable[[LogRequest], LogPart]) -> Iterator[None]:
    channel.put(paths.host(H1), OwnerRecord())
    channel.put(paths.live(H1), OwnerRecord())
    server = LogServer(channel, paths.host_logs(H1), H1, read)
    server.look()
    with serving(server):
        yield


def test_a_log_is_read_and_followed_through_the_agent_of_its_host() -> None:
    channel, place, asked = Channel(), Place(H1, log="driver-enrich-2"), []

    def read(request: LogRequest) -> LogPart:
        asked.append((request.to, request.log, request.lines, request.after))
        return LogPart(text="a line\n", position=7)

    with agent(channel, read):
        assert read_log(channel, seen(), place, 20).text == "a line\n"
        assert read_log_after(channel, seen(), place, 7).position == 7
    assert asked == [("h1", "driver-enrich-2", 20, None), ("h1", "driver-enrich-2", 0, 7)]


def test_a_log_that_the_host_does_not_have_is_named() -> None:
    channel = Channel()
    with (
        agent(channel, lambda _: LogPart(missing="it has not started")),
        pytest.raises(LogAwayError, match="Host h1 has no log of driver-enrich-2: it has not started"),
    ):
        read_log(channel, seen(), Place(H1, log="driver-enrich-2"), 5)


def test_an_agent_of_an_older_version_names_the_command_for_its_host() -> None:
    channel = Channel()
    channel.put(paths.live(H1), OwnerRecord())
    with pytest.raises(LogAwayError, match=r"On h1: `sluice logs h1/driver-enrich-2`"):
        read_log(channel, seen(), Place(H1, log="driver-enrich-2"), 5)
    with pytest.raises(LogAwayError, match=r"On h1: `journalctl -u sluice-agent@h1`"):
        read_log(channel, seen(), Place(H1), 5)
    with pytest.raises(LogAwayError, match=r"On the machine of controller c1: `journalctl"):
        read_log(channel, seen(), Place(controller="c1"), 5)


def test_a_lost_host_says_since_when_and_its_last_known_lines() -> None:
    channel, now = Channel(), seen()
    dead = now.hosts[H1].observed.units[0].model_copy(update={"exit": "exit code 1: no memory"})
    observed = now.hosts[H1].observed.model_copy(update={"units": (dead,)})
    hosts = {**now.hosts, H1: dataclasses.replace(now.hosts[H1], observed=observed)}
    alert = Alert(
        kind="host-lost",
        subject="h1",
        wait=0.0,
        severity=Severity.CRITICAL,
        since=0.0,
        happened="h1 is lost",
        did="",
        do="",
        link="",
    )
    channel.put(paths.ALERTS, AlertRecord(alerts={alert.key: alert}))
    lost = dataclasses.replace(now, hosts=hosts)
    with pytest.raises(LogAwayError, match="host h1 is lost since 1970-01-01") as raised:
        read_log(channel, lost, Place(H1, log="driver-enrich-2"), 5)
    assert raised.value.lines == ("driver-enrich-2: exit code 1: no memory",)
    with pytest.raises(LogAwayError, match="no line of it is known") as raised:
        read_log(channel, lost, Place(H1, log="slot-enrich-2-0"), 5)
    assert raised.value.lines == ()
