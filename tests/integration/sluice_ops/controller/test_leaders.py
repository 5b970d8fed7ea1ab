"""Controller processes on a real ZooKeeper: elected, killed and replaced.

Agents and drivers are simulated over the same channel.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from simulation.live import STEP_SECONDS, LiveWorld

from sluice_ops.channel import Channel, ChannelAwayError, ConflictError, Guard, Write
from sluice_ops.channel.client import SESSION_SECONDS
from sluice_ops.controller.leader import PERIOD_SECONDS, Controller
from sluice_ops.controller.site_watcher import SiteWatcher
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostRecord, HostState, UnitKind
from sluice_ops.model.change import ChangeRecord, ChangeState, EpochRecord, Step
from sluice_ops.model.incarnation import IncarnationReport, State
from sluice_ops.model.share import Layers
from sluice_ops.model.status import ControllerStatus
from sluice_ops.process import metrics_server
from sluice_ops.process.watchdog import HUNG
from tests.integration.sluice_ops.controller.test_channel import chroot, end_session
from tests.scrape import scrape

pytestmark = pytest.mark.timeout(400)

TAKEOVER_SECONDS = SESSION_SECONDS + 2.0 + 4.0
"""The longest time from a leader's death until another leads.

`sluice simulate` limits the takeover to two seconds; here the simulated hosts use some of the
processors.
"""


class Controllers:
    """Controller processes, by name."""

    def __init__(self, address, folder):
        self.address, self.folder, self.running = address, folder, {}
        self.site = folder / "site.yaml"
        self.site.write_text((Path(__file__).parents[4] / "site.yaml").read_text())

    def start(self, name, *wrapper):
        """Start a controller; `wrapper` is a test module that changes its behaviour, with
        arguments.
        """
        with (self.folder / f"{name}.log").open("a") as log:
            self.running[name] = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    *wrapper,
                    "sluice_ops.controller",
                    "--site",
                    self.site,
                    "--name",
                    name,
                    "--zookeeper",
                    self.address,
                ],
                stdout=log,
                stderr=log,
            )

    def end(self, name, *, kill):
        process = self.running.pop(name)
        process.kill() if kill else process.terminate()
        return process.wait(20)

    def stop(self):
        for name in list(self.running):
            self.end(name, kill=True)


@pytest.fixture
def pipeline(zookeeper, tmp_path, request):
    """A channel for the test, and controllers on it."""
    with open_pipeline(f"{zookeeper}/{chroot(request)}", tmp_path) as world_and_controllers:
        yield world_and_controllers


@contextmanager
def open_pipeline(address, tmp_path):
    controllers = Controllers(address, tmp_path)
    with Channel(address) as channel:
        world = LiveWorld(channel=channel)
        try:
            yield world, controllers
        finally:
            controllers.stop()
            sys.stdout.writelines(
                f"--- {log.name}\n{log.read_text()[-6000:]}\n" for log in tmp_path.glob("*.log")
            )


def leader(world):
    status = world.channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
    return None if status is None else status.value.leader


def test_the_standby_finishes_a_drain_when_the_leader_is_killed(pipeline):
    world, controllers = pipeline
    controllers.start("c1")
    world.until_true(lambda: leader(world) == "c1", 120)
    controllers.start("c2")
    world.want()
    world.until_true(world.all_well, 120)
    drained = world.placement("entry").driver
    runbook = world.begin("d1", kind="drain", host=drained)
    world.until_true(lambda: world.next_driver("entry") is not None, 90)
    controllers.end("c1", kill=True)
    world.until_true(lambda: leader(world) == "c2", TAKEOVER_SECONDS)
    world.until_true(lambda: runbook.ended, 180)
    assert runbook.ok, runbook.results
    assert world.host_state(drained) is HostState.DRAINED
    assert not world.agents[drained].units
    assert {world.state(name) for name in world.specs} == {State.RUNNING}
    assert runbook.results[Step.VERIFY].details["receipts"]
    world.check_settled()
    assert controllers.end("c2", kill=False) == 0


def test_exactly_one_of_three_controllers_leads_after_each_of_two_kills(pipeline):
    world, controllers = pipeline
    for count, name in enumerate(("c1", "c2", "c3"), start=1):
        controllers.start(name)
        world.until_true(lambda count=count: len(world.channel.children(paths.LEADER)) == count, 60)
    world.want()
    world.until_true(world.all_well, 120)
    for remaining in (3, 2, 1):
        world.until_true(
            lambda remaining=remaining: len(metrics_server.exporters(world.channel)) == remaining, 60
        )
        leading = [
            exporter.controller
            for exporter in metrics_server.exporters(world.channel)
            if scrape(exporter)["sluice_controller_leader"]
        ]
        assert leading == [leader(world)]
        world.kill_driver("counts")
        world.until_true(
            lambda remaining=remaining: world.owner("counts").owner == 5 - remaining and world.all_well(), 60
        )
        assert world.channel.read(paths.EPOCH, EpochRecord).value.epoch == 4 - remaining
        if remaining > 1:
            controllers.end(*leading, kill=True)
            world.until_true(lambda dead=leading[0]: leader(world) != dead, TAKEOVER_SECONDS)
    world.check_settled()


@contextmanager
def led_in_process(world, controllers, own):
    """Run the pipeline with a leader on this connection, in this process."""
    c1 = Controller(own, "c1", lambda: SiteWatcher(controllers.site).rules)
    thread = threading.Thread(target=c1.run)
    thread.start()
    try:
        world.want()
        world.until_true(lambda: leader(world) == "c1" and world.all_well(), 120)
        yield
    finally:
        c1.stop()
        thread.join(30)


class DeafChannel(Channel):
    """A channel whose watches can be switched off; connection events still arrive."""

    deaf = False

    def _wake(self, event=None):
        if not self.deaf or event is None:
            super()._wake(event)


def test_a_change_without_a_watch_event_is_seen_within_the_period(pipeline):
    world, controllers = pipeline
    with DeafChannel(controllers.address) as own, led_in_process(world, controllers, own):
        for _ in range(30):
            world.tick()
        own.deaf = True
        for _ in range(5):
            world.tick()
        world.kill_driver("counts")
        incarnations = paths.incarnations("counts")
        began = time.monotonic()
        world.until_true(lambda: len(world.channel.children(incarnations)) == 2, PERIOD_SECONDS + 5)
        sys.stdout.write(f"a death without a watch event was seen after {time.monotonic() - began:.1f} s\n")
        world.until_true(lambda: world.owner("counts").owner == 2 and world.all_well(), 90)


def test_a_damaged_node_of_one_tier_does_not_affect_other_tiers(pipeline):
    world, controllers = pipeline
    controllers.start("c1")
    world.want()
    world.until_true(lambda: leader(world) == "c1" and world.all_well(), 120)
    controllers.end("c1", kill=False)
    kazoo, fence, number = world.channel.kazoo, paths.owner("counts"), world.owner("enrich").owner
    good, _ = kazoo.get(fence)
    kazoo.set(fence, b"{broken")
    before = {
        name: [unit for unit in world.assigned(name) if unit.tenant == "counts"] for name in world.agents
    }
    world.kill_driver("enrich")
    controllers.start("c2")
    world.until_true(
        lambda: world.owner("enrich").owner > number and world.state("enrich") is State.RUNNING, 120
    )
    assert {
        name: [unit for unit in world.assigned(name) if unit.tenant == "counts"] for name in world.agents
    } == before

    def sentence():
        return world.channel.read(paths.CONTROLLER_STATUS, ControllerStatus).value.sentence

    world.until_true(
        lambda: (
            f"counts cannot be read: running units continue, and nothing is decided for them; {fence}"
            in sentence()
        ),
        30,
    )
    kazoo.set(fence, good)
    world.until_true(lambda: "cannot be read" not in sentence() and world.all_well(), 30)


@pytest.mark.long
def test_the_standby_finishes_a_rollback_when_the_leader_is_killed(pipeline):
    world, controllers = pipeline
    controllers.start("c1")
    world.want()
    world.until_true(lambda: leader(world) == "c1" and world.all_well(), 120)
    controllers.start("c2")
    runbook = world.begin("s1", kind="scale", tier="enrich", k=3, until=time.time() + 20)
    world.until_true(lambda: runbook.ended, 90)
    assert runbook.ok, runbook.results
    assert len(world.placement("enrich").slots) == 3
    world.until_true(lambda: world.next_driver("enrich") is not None, 90)
    controllers.end("c1", kill=True)
    world.until_true(lambda: not world.channel.read(paths.LAYERS, Layers).value.entries, 180)
    assert leader(world) == "c2"
    (change,) = [name for name in world.channel.children("/changes") if name.startswith("settle-enrich-")]
    record = world.channel.read(paths.change(change), ChangeRecord).value
    assert (record.state, record.by) == (ChangeState.DONE, "the controller")
    assert len(world.placement("enrich").slots) == 2
    world.until_true(world.all_well, 30)
    world.check_settled()


@pytest.mark.long
def test_prometheus_finds_each_controller_and_only_the_leader_shows_state(pipeline):
    world, controllers = pipeline
    controllers.start("c1")
    world.want()
    world.until_true(lambda: leader(world) == "c1" and world.all_well(), 120)
    controllers.start("c2")
    world.until_true(lambda: len(metrics_server.exporters(world.channel)) == 2, 60)
    leading, standby = metrics_server.exporters(world.channel)
    assert (leading.controller, standby.controller) == ("c1", "c2")
    world.until_true(lambda: scrape(leading, tier="entry", state="running").get("sluice_tier_state") == 1, 60)
    world.until_true(
        lambda: (seen := scrape(leading))["sluice_units_running"] == seen["sluice_units_wanted"] > 0, 60
    )
    metrics = scrape(leading)
    assert (metrics["sluice_controller_leader"], metrics["sluice_channel_connected"]) == (1, 1)
    assert metrics["sluice_controller_epoch"] == world.channel.read(paths.EPOCH, EpochRecord).value.epoch
    assert metrics["sluice_host_state"] == len(world.agents)
    assert scrape(leading, phase="decide")["sluice_controller_pass_seconds_count"] > 0
    assert scrape(standby)["sluice_controller_leader"] == 0
    assert "sluice_tier_state" not in scrape(standby)
    controllers.end("c1", kill=True)
    world.until_true(lambda: metrics_server.exporters(world.channel) == [standby], 60)
    world.until_true(lambda: scrape(standby, tier="entry", state="running").get("sluice_tier_state") == 1, 60)


@pytest.mark.long
def test_a_changed_site_file_is_drift_and_repair_applies_it(pipeline):
    world, controllers = pipeline
    controllers.start("c1")
    world.want()
    world.until_true(lambda: leader(world) == "c1" and world.all_well(), 120)
    before = {name: world.placement(name) for name in world.specs}
    rules = (
        "separate: [[entry, enrich]]\nlocality: {outbound: h3}\ndedicated: {h3: [outbound, counts, entry]}\n"
    )
    controllers.site.write_text(controllers.site.read_text() + rules)
    for _ in range(40):
        world.tick()
    drift = json.loads(sluice(controllers, "drift", "--json"))
    assert "outbound" in {line["tier"] for line in drift["drift"]} | {
        note.split()[0] for note in drift["notes"]
    }
    assert {name: world.placement(name) for name in world.specs} == before, (
        "a changed rule alone moves nothing"
    )
    repair = world.begin("r1", kind="repair")
    world.until_true(lambda: repair.ended, 180)
    assert repair.ok, repair.results
    assert world.placement("outbound").hosts == {"h3"}
    second_repair = world.begin("r2", kind="repair")
    world.until_true(lambda: second_repair.ended, 180)
    sluice(controllers, "drift")
    assert not world.placement("entry").hosts & world.placement("enrich").hosts
    world.check_settled()
    controllers.site.write_text("pipeline: [")
    for _ in range(40):
        world.tick()
    assert "its last valid version applies" in (controllers.folder / "c1.log").read_text()
    assert leader(world) == "c1"


@pytest.mark.long
def test_a_new_leader_knows_earlier_deaths_on_a_host_and_quarantines_it(pipeline):
    world, controllers = pipeline
    controllers.start("c1")
    world.want()
    world.until_true(lambda: leader(world) == "c1" and world.all_well(), 120)
    controllers.start("c2")
    slots = {
        name: [unit.id for unit in world.assigned(name) if unit.kind is UnitKind.SLOT]
        for name in world.agents
    }
    name = max(slots, key=lambda host: len(slots[host]))
    assert len(slots[name]) > 1

    def die(times):
        for unit in slots[name]:
            world.agents[name].restart_slot(unit)
        world.until_true(lambda: len(deaths(world, name)) == times * len(slots[name]), 30)

    die(1)
    die(2)
    assert world.host_state(name) is HostState.UP
    controllers.end("c1", kill=True)
    world.until_true(lambda: leader(world) == "c2", 120)
    for unit in slots[name]:
        world.agents[name].restart_slot(unit)
    world.until_true(lambda: world.host_state(name) is HostState.CORDONED, 30)
    record = world.channel.read(paths.host_record(name), HostRecord).value
    assert f"{name} is in quarantine until" in sluice(controllers, "hosts")
    assert f"died there {3 * len(slots[name])} times" in record.reason
    returning = world.begin("r1", kind="return", host=name)
    world.until_true(lambda: returning.ended, 60)
    assert world.host_state(name) is HostState.UP


def sluice(controllers, *words):
    """Run `sluice WORDS` against these controllers; return its output."""
    away = "127.0.0.1:1"
    airflow = {"url": f"http://{away}", "user": "admin", "password": "x"}
    home = str(controllers.folder)
    addresses = {
        "kafka": away,
        "zookeeper": controllers.address,
        "postgres": f"postgresql://x@{away}/x",
        "airflow": airflow,
        "spark": f"spark://{away}",
    }
    (controllers.folder / "endpoints.json").write_text(json.dumps({**addresses, "home": home}))
    env = {**os.environ, "SLUICE_HOME": home, "SLUICE_SITE": str(controllers.site)}
    env.pop("SLUICE_ENDPOINTS", None)
    code = "import sys; from sluice_ops.main import app; app(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    sys.stdout.write(done.stdout)
    return done.stdout


def deaths(world, name):
    versioned = world.channel.read(paths.host_record(name), HostRecord)
    return () if versioned is None else versioned.value.deaths


def test_a_deposed_leader_can_write_no_more(pipeline):
    world, controllers = pipeline
    controllers.start("c1")
    world.until_true(lambda: leader(world) == "c1", 120)
    before = world.channel.read(paths.EPOCH, EpochRecord)
    assert controllers.end("c1", kill=False) == 0, "at SIGTERM, the leader ends after its pass"
    controllers.start("c2")
    world.until_true(lambda: leader(world) == "c2", 120)
    with pytest.raises(ConflictError):
        world.channel.multi([Guard(paths.EPOCH, before.version), Write(paths.LAYERS, Layers(), None)])
    assert not world.channel.exists(paths.LAYERS)


def test_a_handover_is_switched_soon_after_the_report(pipeline):
    world, controllers = pipeline
    controllers.start("c1")
    world.want()
    world.until_true(lambda: leader(world) == "c1" and world.all_well(), 120)
    runbook = world.begin("m1", kind="migrate", tier="counts", to="label:fast")
    if world.placement("counts").hosts == {"h1"}:
        runbook.spec = runbook.spec.model_copy(update={"to": "h2"})
    world.until_true(lambda: runbook.ended, 90)
    assert runbook.ok, runbook.results
    report = world.channel.read(paths.report("counts", 2), IncarnationReport).value
    assert report.caught_up
    running_since = next(at for state, at in report.history if state is State.RUNNING)
    switched = world.channel.kazoo.get(paths.owner("counts"))[1].mtime / 1000
    sys.stdout.write(
        f"switched {(switched - running_since) * 1000:.0f} ms after incarnation 2 ran; "
        "its report of having caught up came a tick later\n"
    )
    assert 0 <= switched - running_since < STEP_SECONDS + 0.5


@pytest.mark.long
def test_a_frozen_leader_finds_another_leader_and_stands_by(pipeline):
    world, controllers = pipeline
    controllers.start("c1")
    world.until_true(lambda: leader(world) == "c1", 120)
    controllers.start("c2")
    controllers.running["c1"].send_signal(signal.SIGSTOP)
    world.want()
    world.until_true(lambda: leader(world) == "c2" and world.all_well(), 120)
    controllers.running["c1"].send_signal(signal.SIGCONT)
    for _ in range(40):
        world.tick()
    assert leader(world) == "c2"
    controllers.end("c2", kill=True)
    world.until_true(lambda: leader(world) == "c1", 120)
    world.kill_driver("counts")
    world.until_true(lambda: world.owner("counts").owner == 2 and world.all_well(), 60)


@pytest.mark.long
def test_a_leader_whose_loop_hangs_loses_its_lead(pipeline):
    world, controllers = pipeline
    hangs = controllers.folder / "hangs"
    controllers.start("c1", "tests.hang_on_file", str(hangs))
    world.until_true(lambda: leader(world) == "c1", 120)
    controllers.start("c2")
    world.until_true(lambda: len(world.channel.children(paths.LEADER)) == 2, 60)
    hangs.touch()
    since = time.monotonic()
    world.want()
    world.until_true(lambda: leader(world) == "c2", 120)
    seconds = time.monotonic() - since
    sys.stdout.write(f"another controller leads {seconds:.1f} s after the leader's loop hung\n")
    assert seconds < TAKEOVER_SECONDS + 2
    world.until_true(lambda: controllers.running["c1"].poll() == HUNG, 20)
    assert (
        ": the working loop of the controller has made no progress"
        in (controllers.folder / "c1.log").read_text()
    )
    world.until_true(world.all_well, 120)


@pytest.mark.long
def test_writes_of_a_leader_that_was_frozen_before_them_are_refused(pipeline):
    world, controllers = pipeline
    controllers.start("c1", "tests.freeze_before_write", paths.change("k1"))
    world.want()
    world.until_true(lambda: leader(world) == "c1" and world.all_well(), 120)
    first = world.channel.read(paths.EPOCH, EpochRecord).value.epoch
    controllers.start("c2")
    world.until_true(lambda: len(world.channel.children(paths.LEADER)) == 2, 60)
    world.begin("k1", kind="cordon", host="h3").step()
    process_state = Path(f"/proc/{controllers.running['c1'].pid}/stat")
    world.until_true(lambda: process_state.read_text().rpartition(")")[2].split()[0] == "T", 60)
    world.runbooks.clear()
    # so that no other controller carries out the operations
    for name in world.channel.children("/operations"):
        world.channel.delete(paths.operation(name))
    world.until_true(lambda: leader(world) == "c2", 120)
    controllers.running["c1"].send_signal(signal.SIGCONT)
    world.until_true(
        lambda: "does not lead: c2 has become leader" in (controllers.folder / "c1.log").read_text(), 60
    )
    assert not world.channel.exists(paths.change("k1"))
    assert not world.channel.exists(paths.LOCK)
    assert world.channel.children("/operations") == [], "not even a parent of its writes exists"
    assert (leader(world), world.channel.read(paths.EPOCH, EpochRecord).value.epoch) == ("c2", first + 1)


@pytest.mark.long
@pytest.mark.parametrize("standby", [False, True])
def test_a_drain_is_carried_out_once_when_the_leaders_session_expires(pipeline, zookeeper, standby):
    world, controllers = pipeline
    with Channel(controllers.address) as own, led_in_process(world, controllers, own):
        if standby:
            controllers.start("c2")
            world.until_true(lambda: len(world.channel.children(paths.LEADER)) == 2, 60)
        first, session = world.channel.read(paths.EPOCH, EpochRecord).value.epoch, own.session
        drained = world.placement("entry").driver
        moved = {name for name in world.specs if drained in world.placement(name).hosts}
        runbook = world.begin("d1", kind="drain", host=drained)
        world.until_true(lambda: world.next_driver("entry") is not None, 90)
        end_session(own, zookeeper)
        world.until_true(lambda: runbook.ended, 180)
        assert runbook.ok, runbook.results
        assert own.session != session
    assert world.host_state(drained) is HostState.DRAINED
    assert world.channel.read(paths.EPOCH, EpochRecord).value.epoch == first + 1
    incarnations = {name: world.channel.children(paths.incarnations(name)) for name in world.specs}
    assert incarnations == {name: ["1", "2"] if name in moved else ["1"] for name in world.specs}, (
        "each tier was moved once"
    )
    world.until_true(world.all_well, 60)
    world.check_settled()


@pytest.mark.long
def test_nothing_moves_while_zookeeper_is_away(pipeline, zookeeper_process):
    world, controllers = pipeline
    controllers.start("c1")
    world.want()
    world.until_true(lambda: leader(world) == "c1" and world.all_well(), 120)
    zookeeper_process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(15)
    finally:  # a frozen ZooKeeper could not be stopped either
        zookeeper_process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            for agent in world.agents.values():
                agent.register()
            break
        except ChannelAwayError:
            time.sleep(0.2)
    for _ in range(50):
        world.tick()
    assert {name: world.owner(name).owner for name in world.specs} == dict.fromkeys(world.specs, 1), (
        "nothing was moved because of the outage"
    )
    runbook = world.begin("m1", kind="migrate", tier="enrich", to="label:fast")
    world.until_true(lambda: runbook.ended, 120)
    assert runbook.ok, runbook.results
