"""A burst that is broken off leaves no instance behind, whatever breaks it off."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import typer
from simulation.memory import MemoryChannel
from simulation.world import tier
from typer.testing import CliRunner

from sluice_ops.channel import ChannelAwayError
from sluice_ops.cli import burst as bursting
from sluice_ops.cli.carry_out import Carried
from sluice_ops.cli.exit_codes import AWAY, FAILED, OK, WRONG_USAGE
from sluice_ops.cloud import ec2
from sluice_ops.cloud.ec2 import CloudAwayError, Instance
from sluice_ops.main import app
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeSpec, Move, Plan, Result, Step
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Placement
from sluice_ops.model.tier import Mode
from sluice_ops.operations.requests import StepResult
from sluice_ops.site.site_file import Ec2Config

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


def carried(*, ok=True, asked=None):
    """Have the controller plan or carry out what it is asked, or refuse it."""

    def carry_out(spec, *, dry_run, change="c1", **_):
        if asked is not None:
            asked.append((spec.kind, dry_run))
        result = Result(
            ok=ok, sentence="said", finished_at=1.0, details={"plan": PLANNED.model_dump(mode="json")}
        )
        return Carried(change, spec, dry_run, 1.0, (StepResult(Step.PREFLIGHT, result),))

    return carry_out


class Cloud:
    """What EC2 has."""

    def __init__(self):
        self.there = [Instance("i-0000000099999999", "running", "another change", "10.0.0.1")]
        self.away = False

    def launch(self, token, count):
        self.there += [Instance(f"i-{number:016d}", "pending", token, "") for number in range(count)]
        return [each.id for each in self.there if each.token == token]

    def instances(self):
        if self.away:
            message = "EC2 at x does not answer"
            raise CloudAwayError(message)
        return list(self.there)

    def terminate(self, ids):
        self.there = [each for each in self.there if each.id not in ids]


@pytest.fixture
def cloud(monkeypatch):
    made, channel = Cloud(), MemoryChannel()
    channel.put(paths.tier("enrich"), tier("enrich", Mode.BATCH, 0))

    @contextmanager
    def opened():
        yield channel

    for name in ("launch", "instances", "terminate"):
        monkeypatch.setattr(ec2, name, getattr(made, name))
    monkeypatch.setattr(bursting, "open_channel", opened)
    monkeypatch.setattr(bursting, "the_site", lambda: SimpleNamespace(ec2=Ec2Config()))
    made.channel = channel
    return made


def burst(*, dry_run=False):
    bursting.burst(SPEC, deadline=60, dry_run=dry_run, as_json=True)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ChannelAwayError("away")])
def test_while_the_hosts_are_waited_for(cloud, monkeypatch, capsys, error):
    def broken_off(_):
        assert len(cloud.there) == 2
        raise error

    monkeypatch.setattr(cloud.channel, "exists", broken_off)
    with pytest.raises(type(error)):
        burst()
    assert [each.token for each in cloud.there] == ["another change"]
    assert "terminated i-0000000000000000" in capsys.readouterr().err


def test_in_the_middle_of_the_launch(cloud, monkeypatch):
    def launch(token, count):
        cloud.launch(token, count)
        raise KeyboardInterrupt

    monkeypatch.setattr(ec2, "launch", launch)
    with pytest.raises(KeyboardInterrupt):
        burst()
    assert [each.token for each in cloud.there] == ["another change"]


def test_when_the_hand_over_fails_and_ec2_is_away_it_is_said_what_is_left(cloud, monkeypatch, capsys):
    def failed(*_, **__):
        cloud.away = True
        return carried(ok=False)(SPEC, dry_run=False)

    monkeypatch.setattr(cloud.channel, "exists", lambda _: True)
    monkeypatch.setattr(bursting, "carried_out", failed)
    with pytest.raises(typer.Exit) as ended:
        burst()
    assert ended.value.exit_code == 1
    assert "may still run. Terminate them: `sluice leave`" in capsys.readouterr().err


def test_an_instance_that_the_tier_runs_on_by_then_is_kept(cloud, monkeypatch, capsys):
    placed = Placement(driver="h1", slots=("h1", "ec2-00000000"))
    cloud.channel.put(paths.owner("enrich"), OwnerRecord(owner=2))
    cloud.channel.put(
        paths.incarnation("enrich", 2),
        IncarnationSpec(tier="enrich", incarnation=2, placement=placed, reason="burst", created_at=1.0),
    )
    monkeypatch.setattr(cloud.channel, "exists", lambda _: True)
    monkeypatch.setattr(bursting, "carried_out", carried(ok=False))
    with pytest.raises(typer.Exit):
        burst()
    assert len(cloud.there) == 2
    assert "kept i-0000000000000000: enrich still runs there" in capsys.readouterr().err
    monkeypatch.setattr(bursting, "carried_out", carried())
    assert leave(as_json=False) == FAILED
    assert [each.id for each in cloud.there] == ["i-0000000000000000"]
    assert "Done" not in capsys.readouterr().out


def test_a_dry_run_launches_nothing_and_has_the_controller_plan(cloud, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(bursting, "carried_out", carried(asked=asked))
    with pytest.raises(typer.Exit) as ended:
        burst(dry_run=True)
    assert (ended.value.exit_code, len(cloud.there), asked) == (OK, 1, [("burst", True)])
    told = json.loads(capsys.readouterr().out)
    assert (told["dry_run"], told["ok"], told["instances"], told["instance_type"]) == (
        True,
        True,
        1,
        "m5.large",
    )
    assert told["steps"][0]["details"]["plan"]["predicted_seconds"] == 70


def test_it_is_planned_as_other_changes_are(cloud, monkeypatch):
    monkeypatch.setattr(bursting, "carried_out", carried())
    done = CliRunner().invoke(app, ["plan", "burst", "enrich", "2"])
    assert (done.exit_code, len(cloud.there)) == (OK, 1)
    assert done.stdout == (
        "would launch 1 x m5.large (1 of at most 3 run now)\n"
        "said\n"
        "  1. enrich: driver h1, workers h1 → driver h1, workers h1, ec2-new-1, ec2-new-1\n"
        "  predicted: about 70 s in all, with a gap of about 0.5 s in a tier's output\n"
        "  not predicted: how long EC2 takes\n"
    )
    monkeypatch.setattr(bursting, "carried_out", carried(ok=False))
    refused = CliRunner().invoke(app, ["plan", "burst", "enrich", "--json"])
    assert (refused.exit_code, json.loads(refused.stdout)["ok"]) == (FAILED, False)


def leave(*, dry_run=False, as_json=True):
    """Leave EC2; return the exit code."""
    with pytest.raises(typer.Exit) as ended:
        bursting.leave(ChangeSpec(kind="leave"), deadline=60, dry_run=dry_run, as_json=as_json)
    return ended.value.exit_code


def test_a_leave_is_done_when_nothing_is_kept_and_json_and_exit_code_agree(cloud, monkeypatch, capsys):
    monkeypatch.setattr(bursting, "carried_out", carried(ok=False))
    assert (leave(), json.loads(capsys.readouterr().out)["ok"], len(cloud.there)) == (FAILED, False, 1)
    monkeypatch.setattr(bursting, "carried_out", carried())
    monkeypatch.setattr(bursting, "tiers_by_host", lambda _: {cloud.there[0].host: ["enrich"]})
    code, told = leave(), json.loads(capsys.readouterr().out)
    assert (code, told["ok"], told["terminated"], told["kept"]) == (
        FAILED,
        False,
        [],
        {"i-0000000099999999": ["enrich"]},
    )
    monkeypatch.setattr(bursting, "tiers_by_host", lambda _: {})
    code, told = leave(), json.loads(capsys.readouterr().out)
    assert (code, told["ok"], told["terminated"], told["kept"]) == (OK, True, ["i-0000000099999999"], {})
    assert cloud.there == []


def test_a_leave_is_not_done_when_ec2_is_away_after_the_hand_over(cloud, monkeypatch):
    monkeypatch.setattr(bursting, "carried_out", carried())
    cloud.away = True
    done = CliRunner().invoke(app, ["leave", "--json"])
    told = json.loads(done.stdout)
    assert (done.exit_code, told["ok"], told["error"]) == (AWAY, False, "EC2 at x does not answer")


@pytest.mark.parametrize("words", [("leave", "--dry-run"), ("plan", "leave")])
def test_the_dry_run_of_a_leave_names_instances_and_terminates_none(cloud, monkeypatch, words):
    asked = []
    monkeypatch.setattr(bursting, "carried_out", carried(asked=asked))
    done = CliRunner().invoke(app, [*words])
    assert done.stdout.endswith("  then it would terminate, unless a tier runs there: i-0000000099999999\n")
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["instances"] == [
        "i-0000000099999999"
    ]
    assert (done.exit_code, asked, len(cloud.there)) == (OK, [("leave", True)] * 2, 1)


def test_the_plan_of_a_leave_is_told_though_ec2_is_away(cloud, monkeypatch):
    monkeypatch.setattr(bursting, "carried_out", carried())
    there = CliRunner().invoke(app, ["leave", "--dry-run"]).stdout.splitlines()[:-1]
    cloud.away = True
    done = CliRunner().invoke(app, ["leave", "--dry-run"])
    assert (done.exit_code, done.stdout.splitlines()) == (AWAY, there)
    assert there


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("enrich 100", "ec2.max_instances is 3"),
        ("nothing 1", 'there is no tier "nothing"; known tiers: enrich'),
        ("enrich 50%", "burst takes a number of workers, 1 or more, not 50%"),
        ("enrich 0", "burst takes a number of workers, 1 or more, not 0"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_reason(cloud, words, why):
    done = CliRunner().invoke(app, ["plan", "burst", *words.split()])
    assert done.exit_code == WRONG_USAGE
    assert why in done.stderr
    assert len(cloud.there) == 1
