"""A burst that is interrupted leaves no instance behind, whatever interrupts it."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import typer
from simulation.ec2 import instance
from simulation.memory import MemoryChannel
from simulation.world import tier
from typer.testing import CliRunner

from sluice_ops.channel import ChannelAwayError
from sluice_ops.cli import burst as bursting
from sluice_ops.cli.carry_out import Carried
from sluice_ops.cloud import burst_hosts, ec2
from sluice_ops.cloud.errors import CloudAwayError, CloudError
from sluice_ops.main import app
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.change import ChangeSpec, Move, Plan, Result, Step
from sluice_ops.model.exit_codes import AWAY, FAILED, OK, WRONG_USAGE
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Placement
from sluice_ops.model.launch import Launch
from sluice_ops.model.load import TierLoad
from sluice_ops.model.scaler import Decision, Memory, Readings, ScalerRecord, TierMemory
from sluice_ops.model.tier import Mode
from sluice_ops.operations.requests import StepResult
from sluice_ops.site.ec2_config import Ec2Config

SPEC = ChangeSpec(kind="burst", tier="enrich", k=2)
HERE, WIDER = (
    Placement(driver="h1", slots=("h1",)),
    Placement(driver="h1", slots=("h1", "ec2-new-1", "ec2-new-1")),
)
PLANNED = Plan(
    moves=(Move(tier="enrich", before=HERE, after=WIDER),),
    predicted_seconds=70,
    predicted_gap_seconds=0.5,
    unpredicted="how long EC2 takes",
)


def fake_carry_out(*, ok=True, approved=True, requests=None):
    """Return a fake of `carried_out`: the controller plans or carries out the change, or refuses
    it; before a launch, another person approves it or not.
    """

    def carry_out(spec, *, dry_run, change="c1", steps=None, **_):
        if requests is not None:
            requests.append((spec.kind, dry_run))
        step = Step.PREFLIGHT if steps is None else Step.APPROVAL
        result = Result(
            ok=ok if steps is None else approved,
            sentence="said",
            finished_at=1.0,
            details={"plan": PLANNED.model_dump(mode="json")},
        )
        return Carried(change, spec, dry_run, 1.0, (StepResult(step, result),))

    return carry_out


class Cloud:
    """The instances of EC2."""

    def __init__(self):
        self.running = [instance("i-0000000099999999", "another change")]
        self.away = False

    def launch(self, token, count, _tell):
        self.running += [instance(f"i-{number:016d}", token, "pending") for number in range(count)]
        return [each for each in self.running if each.token == token]

    def instances(self):
        if self.away:
            message = "EC2 at x does not answer"
            raise CloudAwayError(message)
        return list(self.running)

    def terminate(self, ids):
        self.running = [each for each in self.running if each.id not in ids]


@pytest.fixture
def cloud(monkeypatch):
    fake_cloud, channel = Cloud(), MemoryChannel()
    channel.put(paths.tier("enrich"), tier("enrich", Mode.BATCH, 0))

    @contextmanager
    def opened():
        yield channel

    monkeypatch.setattr(ec2, "the_cloud", lambda: fake_cloud)
    monkeypatch.setattr(bursting, "open_channel", opened)
    monkeypatch.setattr(bursting, "check_launch", lambda *_: ["the quota was not checked"])
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out())
    monkeypatch.setattr(bursting, "the_site", lambda: SimpleNamespace(ec2=Ec2Config()))
    fake_cloud.channel = channel
    return fake_cloud


def burst(*, dry_run=False):
    bursting.burst(SPEC, deadline=60, dry_run=dry_run, as_json=True)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ChannelAwayError("away")])
def test_an_interrupt_while_waiting_for_hosts_terminates_the_instances(cloud, monkeypatch, capsys, error):
    def interrupt(_):
        assert len(cloud.running) == 2
        raise error

    monkeypatch.setattr(cloud.channel, "exists", interrupt)
    with pytest.raises(type(error)):
        burst()
    assert [each.token for each in cloud.running] == ["another change"]
    assert "terminated i-0000000000000000" in capsys.readouterr().err


@pytest.mark.parametrize("as_json", [True, False])
def test_a_burst_that_another_person_refuses_launches_nothing(cloud, monkeypatch, capsys, as_json):
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out(approved=False))
    monkeypatch.setattr(cloud, "launch", None)
    with pytest.raises(typer.Exit) as ended:
        bursting.burst(SPEC, deadline=60, dry_run=False, as_json=as_json)
    printed = capsys.readouterr()
    assert (ended.value.exit_code, len(cloud.running)) == (FAILED, 1)
    assert printed.err.endswith("no instance was launched\n")
    assert not as_json or json.loads(printed.out)["ok"] is False


def test_the_controller_is_asked_with_the_instances_and_their_cost(cloud, monkeypatch):
    config = Ec2Config(price_per_hour={"m5.large": 0.5}, max_cost_per_day=2.0)
    monkeypatch.setattr(bursting, "the_site", lambda: SimpleNamespace(ec2=config))
    monkeypatch.setattr(bursting.time, "time", lambda: 20 * 3600.0)
    monkeypatch.setattr(cloud.channel, "exists", lambda _: True)
    asked = []

    def carry_out(spec, *, steps=None, **_):
        asked.append((steps, spec.launch, len(cloud.running)))
        return fake_carry_out()(spec, dry_run=False, steps=steps)

    monkeypatch.setattr(bursting, "carried_out", carry_out)
    with pytest.raises(typer.Exit):
        burst()
    launch = Launch(instances=1, per_hour=0.5, could_cost=2.0, spent=10.0, running_could_cost=2.0, budget=2.0)
    assert asked == [((Step.APPROVAL,), launch, 1), (None, launch, 2)]


def test_an_interrupt_during_the_launch_terminates_the_instances(cloud, monkeypatch):
    launch_instances = cloud.launch

    def launch(token, count, tell):
        launch_instances(token, count, tell)
        raise KeyboardInterrupt

    monkeypatch.setattr(cloud, "launch", launch)
    with pytest.raises(KeyboardInterrupt):
        burst()
    assert [each.token for each in cloud.running] == ["another change"]


def test_a_failed_handover_without_ec2_names_the_remaining_instances(cloud, monkeypatch, capsys):
    def failed(*_, steps=None, **__):
        cloud.away = steps is None
        return fake_carry_out(ok=False)(SPEC, dry_run=False, steps=steps)

    monkeypatch.setattr(cloud.channel, "exists", lambda _: True)
    monkeypatch.setattr(bursting, "carried_out", failed)
    with pytest.raises(typer.Exit) as ended:
        burst()
    assert ended.value.exit_code == 1
    assert "may still run. Terminate them: `sluice leave`" in capsys.readouterr().err


def test_an_instance_on_which_the_tier_runs_is_kept(cloud, monkeypatch, capsys):
    placed = Placement(driver="h1", slots=("h1", "ec2-00000000"))
    cloud.channel.put(paths.owner("enrich"), OwnerRecord(owner=2))
    cloud.channel.put(
        paths.incarnation("enrich", 2),
        IncarnationSpec(tier="enrich", incarnation=2, placement=placed, reason="burst", created_at=1.0),
    )
    monkeypatch.setattr(cloud.channel, "exists", lambda _: True)
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out(ok=False))
    with pytest.raises(typer.Exit):
        burst()
    assert len(cloud.running) == 2
    assert "kept i-0000000000000000: enrich still runs there" in capsys.readouterr().err
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out())
    assert leave(as_json=False) == FAILED
    assert [each.id for each in cloud.running] == ["i-0000000000000000"]
    assert "Done" not in capsys.readouterr().out


def test_a_dry_run_of_a_burst_only_plans(cloud, monkeypatch, capsys):
    requests = []
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out(requests=requests))
    with pytest.raises(typer.Exit) as ended:
        burst(dry_run=True)
    assert (ended.value.exit_code, len(cloud.running), requests) == (OK, 1, [("burst", True)])
    output = json.loads(capsys.readouterr().out)
    assert (output["dry_run"], output["ok"], output["instances"], output["instance_types"]) == (
        True,
        True,
        1,
        ["m5.large"],
    )
    assert output["steps"][0]["details"]["plan"]["predicted_seconds"] == 70


def test_plan_shows_a_burst_like_other_changes(cloud, monkeypatch):
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out())
    done = CliRunner().invoke(app, ["plan", "burst", "enrich", "2"])
    assert (done.exit_code, len(cloud.running)) == (OK, 1)
    assert done.stdout == (
        "would launch 1 x m5.large (1 of at most 3 run now)\n"
        "said\n"
        "  1. enrich: driver h1, workers h1 → driver h1, workers h1, ec2-new-1, ec2-new-1\n"
        "  predicted: about 70 s in all, with a gap of about 0.5 s in a tier's output\n"
        "  not predicted: how long EC2 takes\n"
    )
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out(ok=False))
    refused = CliRunner().invoke(app, ["plan", "burst", "enrich", "--json"])
    assert (refused.exit_code, json.loads(refused.stdout)["ok"]) == (FAILED, False)


@pytest.mark.usefixtures("cloud")
def test_a_plan_shows_workers_that_leave_and_workers_that_join(monkeypatch):
    before = Placement(driver="h1", slots=("h1", "ec2-1", "h2"))
    after = Placement(driver="h1", slots=("h1", "h2"))
    plan = Plan(moves=(Move(tier="enrich", before=before, after=after, in_place=True),))
    step = StepResult(
        Step.PREFLIGHT,
        Result(ok=True, sentence="said", finished_at=1.0, details={"plan": plan.model_dump(mode="json")}),
    )
    carried = Carried("c1", ChangeSpec(kind="leave"), True, 1.0, (step,))
    monkeypatch.setattr(bursting, "carried_out", lambda *_, **__: carried)
    planned = CliRunner().invoke(app, ["plan", "leave"])
    assert "  1. enrich: releases 2 workers, then gets 1 worker in place, on h2\n" in planned.stdout


def leave(*, dry_run=False, as_json=True):
    """Leave EC2; return the exit code."""
    with pytest.raises(typer.Exit) as ended:
        bursting.leave(ChangeSpec(kind="leave"), deadline=60, dry_run=dry_run, as_json=as_json)
    return ended.value.exit_code


def test_a_leave_is_done_when_nothing_is_kept_and_json_and_exit_code_agree(cloud, monkeypatch, capsys):
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out(ok=False))
    assert (leave(), json.loads(capsys.readouterr().out)["ok"], len(cloud.running)) == (FAILED, False, 1)
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out())
    monkeypatch.setattr(burst_hosts, "tiers_by_host", lambda _: {cloud.running[0].host: ["enrich"]})
    code, output = leave(), json.loads(capsys.readouterr().out)
    assert (code, output["ok"], output["terminated"], output["kept"]) == (
        FAILED,
        False,
        [],
        {"i-0000000099999999": ["enrich"]},
    )
    monkeypatch.setattr(burst_hosts, "tiers_by_host", lambda _: {})
    host = "ec2-99999999"
    facts = HostFacts(name=host, address="10.0.0.1", zone="ec2", cpu=4, memory=4096)
    cloud.channel.put(paths.host(host), facts)
    code, output = leave(), json.loads(capsys.readouterr().out)
    assert (code, output["ok"], output["terminated"], output["kept"], output["retired"]) == (
        OK,
        True,
        ["i-0000000099999999"],
        {},
        [host],
    )
    assert cloud.channel.children("/hosts") == []
    assert cloud.running == []


def test_a_leave_of_one_tier_keeps_the_instances_of_others(cloud, monkeypatch):
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out())
    cloud.running.append(instance("i-0000000088888888", "enrichs change"))
    users = {"ec2-99999999": ["counts"]}
    monkeypatch.setattr(burst_hosts, "tiers_by_host", lambda _: users)
    monkeypatch.setattr(bursting, "_retire", lambda _: [])
    monkeypatch.setattr(bursting.time, "time", lambda: 3600.0)
    left = CliRunner().invoke(app, ["leave", "--tier", "enrich", "--json"])
    output = json.loads(left.stdout)
    assert (left.exit_code, output["terminated"], output["kept"]) == (OK, ["i-0000000088888888"], {})
    users["ec2-99999999"] = ["enrich"]
    part = CliRunner().invoke(app, ["leave", "--tier", "enrich", "--k", "1"])
    assert (part.exit_code, len(cloud.running)) == (OK, 1)
    whole = CliRunner().invoke(app, ["leave", "--tier", "enrich"])
    assert whole.exit_code == FAILED
    assert "kept i-0000000099999999: enrich still runs there" in whole.stderr


def test_a_leave_fails_if_ec2_is_away_after_the_handover(cloud, monkeypatch):
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out())
    cloud.away = True
    done = CliRunner().invoke(app, ["leave", "--json"])
    output = json.loads(done.stdout)
    assert (done.exit_code, output["ok"], output["error"]) == (AWAY, False, "EC2 at x does not answer")


@pytest.mark.parametrize("words", [("leave", "--dry-run"), ("plan", "leave")])
def test_the_dry_run_of_a_leave_names_instances_and_terminates_none(cloud, monkeypatch, words):
    requests = []
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out(requests=requests))
    done = CliRunner().invoke(app, [*words])
    assert done.stdout.endswith("  then it would terminate, unless a tier runs there: i-0000000099999999\n")
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["instances"] == [
        "i-0000000099999999"
    ]
    assert (done.exit_code, requests, len(cloud.running)) == (OK, [("leave", True)] * 2, 1)


def test_the_plan_of_a_leave_is_shown_although_ec2_is_away(cloud, monkeypatch):
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out())
    usual_lines = CliRunner().invoke(app, ["leave", "--dry-run"]).stdout.splitlines()[:-1]
    cloud.away = True
    done = CliRunner().invoke(app, ["leave", "--dry-run"])
    assert (done.exit_code, done.stdout.splitlines()) == (AWAY, usual_lines)
    assert usual_lines


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("enrich 100", "ec2.max_instances is 3"),
        ("nothing 1", 'there is no tier "nothing"; known tiers: enrich'),
        ("enrich 50%", "burst takes a number of workers, 1 or more, not 50%"),
        ("enrich 0", "burst takes a number of workers, 1 or more, not 0"),
    ],
)
def test_an_impossible_burst_is_refused_with_the_reason(cloud, words, reason):
    done = CliRunner().invoke(app, ["plan", "burst", *words.split()])
    assert done.exit_code == WRONG_USAGE
    assert reason in done.stderr
    assert len(cloud.running) == 1


@pytest.mark.parametrize(
    ("k", "reason"),
    [
        ("5000", "5000 workers of enrich on EC2 need 1250 more instances, 1 run already"),
        ("9" * 400, "ask for fewer workers"),
        ("0", "burst takes a number of workers, 1 or more, not 0"),
    ],
)
def test_a_burst_by_a_wrong_number_is_refused_with_the_next_step(cloud, k, reason):
    done = CliRunner().invoke(app, ["burst", "enrich", k])
    assert (done.exit_code, len(cloud.running)) == (WRONG_USAGE, 1)
    assert reason in done.stderr


def test_a_reap_tells_what_it_would_do_and_does_it(cloud, monkeypatch):
    monkeypatch.setattr("sluice_ops.cli.reap.open_channel", bursting.open_channel)
    planned = CliRunner().invoke(app, ["reap", "--dry-run"])
    assert planned.stdout.startswith("would be terminated: i-0000000099999999 (m5.large")
    assert "no agent serves ec2-99999999" in planned.stdout
    assert len(cloud.running) == 1
    done = json.loads(CliRunner().invoke(app, ["reap", "--json"]).stdout)
    assert (list(done["terminated"]), done["retired"], cloud.running) == (
        ["i-0000000099999999 (m5.large, on-demand, eu-central-1a)"],
        [],
        [],
    )
    assert (
        CliRunner().invoke(app, ["reap"]).stdout.startswith("every instance of this installation is in use")
    )


def test_a_burst_that_ec2_would_refuse_ends_before_anything_is_launched(cloud, monkeypatch):
    def refuse(_cloud, count):
        assert count == 1
        message = "UnauthorizedOperation. Allow ec2:RunInstances"
        raise CloudError(message)

    assert "the quota was not checked" in CliRunner().invoke(app, ["plan", "burst", "enrich", "2"]).stderr
    monkeypatch.setattr(bursting, "check_launch", refuse)
    for words in (["burst", "enrich", "2"], ["plan", "burst", "enrich", "2"]):
        done = CliRunner().invoke(app, words)
        assert (done.exit_code, len(cloud.running)) == (FAILED, 1)
        assert "Allow ec2:RunInstances" in done.stderr


def test_a_burst_and_a_leave_keep_receipts_for_the_cost_of_the_day(cloud, monkeypatch):
    checked, launch_of = [], bursting.launch_of
    look = lambda receipts, *rest: checked.append(receipts) or launch_of(receipts, *rest)
    monkeypatch.setattr(bursting, "launch_of", look)
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out())
    monkeypatch.setattr(bursting.time, "time", lambda: 3600.0)
    monkeypatch.setattr(cloud.channel, "exists", lambda _: True)
    with pytest.raises(typer.Exit):
        burst()
    assert leave() == OK
    with pytest.raises(typer.Exit):
        burst(dry_run=True)
    assert [[(each.launched_at, each.ended_at) for each in receipts] for receipts in checked] == [
        [(0.0, None)],
        [(0.0, 3600.0), (0.0, 3600.0)],
    ]


def test_a_burst_tells_whether_it_comes_in_time_and_is_made_all_the_same(cloud, monkeypatch):
    load = TierLoad(at=0, rate_in=100, rate_done=300, rate_out=1, workers=2, lag=10_000, lag_seconds=9)
    cloud.channel.put(paths.owner("enrich"), OwnerRecord(owner=2))
    cloud.channel.put(paths.load("enrich", 2), load)
    decision = Decision(mode="advise", slots=2, wanted=2, reason="enough", since=1.0, in_place=True)
    cloud.channel.put(paths.SCALER, ScalerRecord(decisions={"enrich": decision}))
    monkeypatch.setattr(bursting.time, "time", lambda: 20.0)
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out())
    monkeypatch.setattr(cloud.channel, "exists", lambda _: True)
    planned = CliRunner().invoke(app, ["plan", "burst", "enrich", "2"])
    sentence = (
        "the burst may come in time: it is ready in more than 8 s (the change; no instance has been timed "
        "yet); enrich clears its lag of 10,000 records without the burst in about 50 s (100/s arrive, and "
        "its 2 workers process 300/s)"
    )
    assert sentence in planned.stderr
    late = load.model_copy(update={"lag": 1000})
    cloud.channel.put(paths.load("enrich", 2), late)
    planned = json.loads(CliRunner().invoke(app, ["plan", "burst", "enrich", "2", "--json"]).stdout)
    assert planned["break_even"]["too_late"]
    assert planned["break_even"]["sentence"].startswith("the burst comes too late: it is ready in")
    made = CliRunner().invoke(app, ["burst", "enrich", "2"])
    assert (made.exit_code, len(cloud.running)) == (OK, 2)
    assert planned["break_even"]["sentence"] in made.stderr


def test_prices_are_told_before_a_burst_and_the_cost_after_a_leave(cloud, monkeypatch):
    config = Ec2Config(price_per_hour={"m5.large": 0.12})
    monkeypatch.setattr(bursting, "the_site", lambda: SimpleNamespace(ec2=config))
    monkeypatch.setattr(bursting, "carried_out", fake_carry_out())
    planned = CliRunner().invoke(app, ["plan", "burst", "enrich", "2"])
    assert planned.stdout.startswith("would launch 1 x m5.large (1 of at most 3 run now), for 0.12 an hour\n")
    assert "a million records" not in planned.stderr
    readings = Readings(at=0, rate_in=1, rate_done=1, rate_out=1, best_done=1, per_worker=100)
    cloud.channel.put(paths.SCALER_MEMORY, Memory(tiers={"enrich": TierMemory(readings=readings)}))
    planned = CliRunner().invoke(app, ["plan", "burst", "enrich", "2", "--json"])
    assert json.loads(planned.stdout)["cost_per_million"] == 0.166667  # 0.12 for 2 x 100/s x 3600 s
    assert "a million records cost 0.17 on the new instances, if their workers are always" in planned.stderr
    monkeypatch.setattr(bursting.time, "time", lambda: 2 * 3600.0)
    left = CliRunner().invoke(app, ["leave", "--json"])
    assert json.loads(left.stdout)["cost"] == 0.24
    assert "ran for 2.00 hours and cost 0.24 (0.12 an hour)" in left.stderr
    assert cloud.running == []
