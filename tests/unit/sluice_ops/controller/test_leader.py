"""A leader's decisions when nodes cannot be read; with the channel in memory."""

import json
import threading
from types import SimpleNamespace

import pytest
from simulation.damaged_channel import DamagedChannel
from simulation.world import RULES, World
from structlog.testing import capture_logs

from sluice_ops.channel import ConflictError
from sluice_ops.controller import leader as process
from sluice_ops.controller.leader import Controller
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostRecord
from sluice_ops.model.change import EpochRecord
from sluice_ops.model.incarnation import State
from sluice_ops.model.status import ControllerStatus


class Open(DamagedChannel):
    """The channel as a leader sees it."""

    session = 1
    connected = True
    kazoo = SimpleNamespace(Lock=lambda *_: None)

    def on_wake(self, _waker):
        """Do nothing: no thread waits."""


@pytest.fixture
def world():
    running = World(channel=Open())
    running.bring_up()
    running.channel.put(paths.host_record("h1"), HostRecord())
    return running


class Leader:
    """A controller that leads."""

    def __init__(self, world):
        self.world = world
        self.controller = Controller(world.channel, "c1", lambda: RULES)
        self.term = self.controller._become_leader(1)

    def run_passes(self, passes=20):
        """Make passes as a leader does; after each pass, let the agents take a step."""
        for _ in range(passes):
            self.world.now += 1
            try:
                self.controller._pass(self.term)
            except ConflictError as conflict:
                self.controller._resolve_conflict(self.term, conflict)
            for agent in self.world.agents.values():
                agent.step()

    @property
    def status(self):
        return self.world.channel.read(paths.CONTROLLER_STATUS, ControllerStatus).value


def units(world, tenant):
    return {name: [unit for unit in world.assigned(name) if unit.tenant == tenant] for name in world.agents}


@pytest.mark.parametrize(
    "path", [paths.assignment("h1"), paths.host_record("h1"), paths.LAYERS, paths.LOCK, paths.HOLDS]
)
def test_a_new_leader_names_an_unreadable_node_and_decides_nothing_by_it(world, path):
    world.channel.damage(path)
    before = {name: world.assigned(name) for name in world.agents}
    leader = Leader(world)
    leader.run_passes()
    assert leader.status.sentence.startswith(f"decides nothing: {path} cannot be read; if a newer version")
    assert {name: world.assigned(name) for name in world.agents} == before
    assert not world.owner("counts").stopped


NODES = [paths.tier("counts"), paths.owner("counts"), paths.wanted("counts"), paths.incarnation("counts", 1)]


@pytest.mark.parametrize("path", NODES)
def test_a_new_leader_leaves_an_unreadable_tier_and_serves_the_others(world, path):
    world.channel.damage(path)
    before, number = units(world, "counts"), world.owner("enrich").owner
    world.kill_driver("enrich")
    leader = Leader(world)
    leader.run_passes()
    assert world.owner("enrich").owner > number
    assert world.state("enrich") is State.RUNNING
    assert units(world, "counts") == before
    assert (
        f"counts cannot be read: running units continue, and nothing is decided for them; {path}: "
        in leader.status.sentence
    )
    world.channel.mend(path)
    world.kill_driver("counts")
    leader.run_passes()
    assert world.owner("counts").owner > 1
    assert "cannot be read" not in leader.status.sentence


def test_a_new_leader_places_nothing_on_a_host_with_an_unreadable_record(
    world,
):
    old = Leader(world)
    old.run_passes(1)
    world.channel.damage(paths.host("h2"))
    old.run_passes()
    assert "cannot be read" not in old.status.sentence
    assigned_before = world.assigned("h2")
    assert assigned_before
    new = Leader(world)
    new.run_passes()
    assert (
        "the facts of h2 cannot be read: running units continue, and nothing new is placed there; "
        f"{paths.host('h2')}: " in new.status.sentence
    )
    assert world.assigned("h2") == assigned_before
    world.channel.mend(paths.host("h2"))
    new.run_passes()
    assert "cannot be read" not in new.status.sentence


@pytest.mark.parametrize("variant", ["its fence", "its host"])
def test_the_last_good_value_is_used_until_it_must_be_overwritten(world, variant):
    path = (
        paths.owner("counts")
        if variant == "its fence"
        else paths.assignment(world.placement("counts").driver)
    )
    leader = Leader(world)
    leader.run_passes(1)
    world.channel.damage(path)
    before = units(world, "counts")
    leader.run_passes()
    assert "cannot be read" not in leader.status.sentence
    world.kill_driver("counts")
    leader.run_passes()
    assert (
        "counts cannot be read" if variant == "its fence" else f"decides nothing: {path} cannot be read"
    ) in leader.status.sentence
    assert units(world, "counts") == before
    number = world.owner("enrich").owner
    world.channel.mend(path)
    for name in ("counts", "enrich"):
        world.kill_driver(name)
    leader.run_passes()
    assert "cannot be read" not in leader.status.sentence
    assert world.owner("enrich").owner > number


@pytest.mark.parametrize(
    "capacity",
    [
        {"cpu": 0},
        {"cpu": -5},
        {"memory": 0},
        {"memory": -5},
        {"cpu": "1e999"},
        {"cpu": 1e300},
        {"memory": 10**30},
    ],
)
def test_impossible_host_capacities_are_not_read(world, capacity):
    path = paths.host("h2")
    data, version, _ = world.channel.nodes[path]
    fields = ", ".join(
        f'"{key}": {value}'
        for key, value in {**json.loads(data), **capacity}.items()
        if key in {"cpu", "memory"}
    )
    world.channel.nodes[path] = (
        f'{{"name": "h2", "address": "127.0.0.1", "zone": "onprem", {fields}}}',
        version + 1,
        None,
    )
    world.kill_driver("enrich")
    leader = Leader(world)
    leader.run_passes()
    assert (
        f"the facts of h2 cannot be read: running units continue, and nothing new is placed there; {path}: "
        in leader.status.sentence
    )
    assert world.state("enrich") is State.RUNNING


@pytest.mark.parametrize("variant", ["damaged", "emptied", "deleted"])
def test_a_lost_epoch_is_written_above_the_last_known_one(world, variant):
    for _ in range(3):
        Leader(world).run_passes(1)
    _, version, _ = world.channel.nodes[paths.EPOCH]
    if variant == "deleted":
        world.channel.delete(paths.EPOCH)
    else:
        world.channel.nodes[paths.EPOCH] = ("{broken" if variant == "damaged" else "", version + 1, None)
    new = Leader(world)
    stored = world.channel.read(paths.EPOCH, EpochRecord)
    assert stored.value == EpochRecord(epoch=4, leader="c1")
    assert stored.version == (0 if variant == "deleted" else version + 2)
    world.kill_driver("enrich")
    new.run_passes()
    assert world.state("enrich") is State.RUNNING


def test_a_leader_that_lost_its_epoch_reports_it_and_takes_office_again(world, elected, monkeypatch):
    decided, passes, logged = process.decide, [], []

    def decide(*arguments):
        passes.append(arguments)
        if len(passes) == 1:  # before the leader has written anything
            world.channel.nodes[paths.EPOCH] = ("{broken", 1, None)
        else:
            elected.stop()
        return decided(*arguments)

    monkeypatch.setattr(process, "decide", decide)
    monkeypatch.setattr(elected, "_say", logged.append)
    elected.run()
    assert len(passes) == 2
    assert (
        f"controller does not lead: {paths.EPOCH} is missing or cannot be read; "
        "the next leader writes it again" in logged
    )
    assert world.channel.read(paths.EPOCH, EpochRecord).value == EpochRecord(epoch=1, leader="c1"), (
        "the first term's epoch was never published"
    )
    assert world.channel.read(paths.CONTROLLER_STATUS, ControllerStatus).value.leader == "c1"


def test_an_assignment_after_a_deletion_is_never_older_to_its_agent(world):
    name = world.placement("counts").driver
    leader = Leader(world)
    leader.run_passes(2)
    before, number = world.agents[name].assigned, world.owner("counts").owner
    world.channel.delete(paths.assignment(name))
    leader.run_passes(2)
    assert world.agents[name].assigned.epoch > before.epoch
    assert world.agents[name].assigned.units == before.units
    world.kill_driver("counts")
    leader.run_passes()
    assert world.owner("counts").owner > number
    assert world.state("counts") is State.RUNNING


def test_the_sink_admits_the_owner_after_its_record_was_deleted(world):
    before = world.owner("counts")
    leader = Leader(world)
    leader.run_passes(2)
    world.channel.delete(paths.owner("counts"))
    leader.run_passes()
    assert world.owner("counts").owner > before.owner
    assert world.owner("counts").epoch > before.epoch
    assert world.state("counts") is State.RUNNING


class Stopping(threading.Event):
    """A stop event that never waits; it records each timeout."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def wait(self, timeout=None):
        self.waits.append(timeout)
        return self.is_set()


@pytest.fixture
def elected(world, monkeypatch):
    """A controller that is always elected; its stop event records the waits between its terms."""
    lock = SimpleNamespace(acquire=lambda **_: True, release=lambda: None)
    monkeypatch.setattr(world.channel, "kazoo", SimpleNamespace(Lock=lambda *_: lock))
    controller = Controller(world.channel, "c1", lambda: RULES)
    controller._stopping = Stopping()
    return controller


def test_an_unforeseen_error_is_reported_and_the_controller_retries(world, elected, monkeypatch):
    statuses = []

    def decide(*_):
        if len(statuses) == 2:
            elected.stop()
        statuses.append(
            None if not statuses else world.channel.read(paths.CONTROLLER_STATUS, ControllerStatus).value
        )
        message = "no\nsuch word"
        raise LookupError(message)

    monkeypatch.setattr(process, "decide", decide)
    with capture_logs() as logs:
        elected.run()
    assert len(statuses) == 3
    assert elected._stopping.waits == [process.FAILED_SECONDS] * 3
    where = "for the full error: sluice logs controller"
    assert (
        statuses[1].sentence
        == f"decides nothing: controller c1 failed and retries; {where}; error: LookupError: no such word"
    )
    assert (statuses[1].epoch, statuses[2].epoch) == (1, 2)
    failures = [line["event"] for line in logs if line.get("exc_info")]
    assert failures == ["controller has failed: LookupError: no such word"] * 3


def test_a_failed_leader_does_not_overwrite_another_leaders_status(world, elected, monkeypatch):
    def decide(*_):
        elected.stop()
        world.channel.put(paths.EPOCH, EpochRecord(epoch=7, leader="c2"))
        raise LookupError

    monkeypatch.setattr(process, "decide", decide)
    elected.run()
    assert not world.channel.exists(paths.CONTROLLER_STATUS)


def test_a_tier_with_an_unwritable_value_delays_no_other_tier(world):
    leader = Leader(world)
    leader.run_passes(1)
    world.channel.damage(paths.owner("counts"))
    number = world.owner("enrich").owner
    for name in ("counts", "enrich"):
        world.kill_driver(name)
    leader.run_passes()
    assert world.owner("enrich").owner > number
    assert world.state("enrich") is State.RUNNING


def test_unreadable_reports_and_history_stop_no_decision(world):
    world.channel.damage(paths.report("counts", 1))
    world.channel.damage(paths.observed("h1"))
    world.channel.damage(paths.change("of-a-kind-that-a-newer-version-knows"))
    leader = Leader(world)
    leader.run_passes(2)
    assert "cannot be read" not in leader.status.sentence


@pytest.mark.parametrize("read_before", [True, False])
def test_an_unreadable_status_is_written_again(world, read_before):
    leader = Leader(world)
    leader.run_passes(2 if read_before else 0)
    world.channel.damage(paths.CONTROLLER_STATUS)
    world.kill_driver("enrich")
    leader.run_passes()
    assert world.state("enrich") is State.RUNNING
    assert paths.CONTROLLER_STATUS not in world.channel.damaged
    assert (leader.status.epoch, set(leader.status.tiers)) == (leader.term.epoch, set(world.specs))


def test_a_deposed_leader_does_not_rewrite_an_unreadable_status(world, monkeypatch):
    Leader(world).run_passes(2)
    world.channel.damage(paths.CONTROLLER_STATUS)
    leader = Leader(world)
    leader.controller._look()
    read = world.channel.read

    def read_just_before_another_takes_office(path, model):
        value = read(path, model)
        world.channel.put(paths.EPOCH, EpochRecord(epoch=leader.term.epoch + 1, leader="c2"))
        return value

    monkeypatch.setattr(world.channel, "read", read_just_before_another_takes_office)
    with pytest.raises(ConflictError):
        leader.controller._resolve_conflict(leader.term, ConflictError(paths.CONTROLLER_STATUS))
    assert paths.CONTROLLER_STATUS in world.channel.damaged
