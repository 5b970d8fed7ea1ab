"""What the page shows, from the queries of the command line."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sluice_airflow.forms import Pipeline
from sluice_airflow.page.actions import actions
from sluice_airflow.page.content import CHANGES, content
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostFacts, Observed
from sluice_ops.model.batch import BatchGrants, BatchRequest
from sluice_ops.model.change import ChangeRecord, ChangeSpec, ChangeState, Plan, Step
from sluice_ops.model.ids import ChangeId, HostName, Tenant, TierName
from sluice_ops.model.incarnation import OwnerRecord
from sluice_ops.model.scaler import Decision, Mode, ScalerRecord
from sluice_ops.model.share import Layer, LayerEntry, Layers
from sluice_ops.model.tier import Delivery, Kind, TierSpec
from sluice_ops.model.tier import Mode as TierMode
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.queries.figures import Audited, Figures, OpenLoss
from sluice_ops.site.site_file import SiteError, load
from sluice_ops.snapshot.sources import source_figures
from sluice_ops.snapshot.view import read_view
from tests.simulation.memory import MemoryChannel

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def channel():
    """The tier `counts`, which reads `hits`."""
    channel, name = MemoryChannel(), TierName("counts")
    spec = TierSpec(
        name=name, kind=Kind.OUTBOUND, mode=TierMode.BATCH, delivery=Delivery.EXACTLY_ONCE, inputs=("hits",)
    )
    channel.put(paths.tier(name), spec)
    channel.put(paths.owner(name), OwnerRecord())
    return channel


def the_site():
    return load(ROOT / "site.yaml")


def shown(channel, tmp_path, figures=None, site=the_site):
    hook = SimpleNamespace(site=site, home=tmp_path)
    view = read_view(channel)
    return content(view, figures or Figures(), hook, source_figures(channel, view))


def test_a_tier_has_its_streams_and_the_decision_of_the_scaler(channel, tmp_path):
    decision = Decision(mode=Mode.ADVISE, slots=2, wanted=4, reason="400 records/s need 4 workers", since=1.0)
    channel.put(paths.SCALER, ScalerRecord(decisions={TierName("counts"): decision}))
    (tier,) = shown(channel, tmp_path)["tiers"]
    assert (tier["inputs"], tier["outputs"]) == (["hits"], [])
    assert (tier["scaler"]["wanted"], tier["scaler"]["reason"]) == (4, "400 records/s need 4 workers")


def test_a_change_has_all_steps_of_its_kind_in_their_order(channel, tmp_path):
    change = ChangeRecord(
        id=ChangeId("d1"),
        spec=ChangeSpec(kind="drain", host=HostName("h1")),
        plan=Plan(),
        state=ChangeState.ACTIVE,
        by="airflow:drain_host/r1",
        started_at=1.0,
        took={Step.PREFLIGHT: 0.5},
    )
    channel.put(paths.change(change.id), change)
    (line,) = shown(channel, tmp_path)["changes"]
    assert (line["what"], line["steps"]) == ("drain h1", {"preflight": 0.5})
    assert line["all_steps"] == [step.value for step in KINDS["drain"].steps]


@pytest.mark.parametrize("count", [CHANGES, CHANGES + 1])
def test_the_page_says_whether_older_changes_exist(channel, tmp_path, count):
    for number in range(count):
        change = ChangeRecord(
            id=ChangeId(f"d{number}"),
            spec=ChangeSpec(kind="drain", host=HostName("h1")),
            plan=Plan(),
            state=ChangeState.DONE,
            by="cli:anna",
            started_at=float(number),
        )
        channel.put(paths.change(change.id), change)
    state = shown(channel, tmp_path)
    assert len(state["changes"]) == CHANGES
    assert state["changes"][-1]["id"] == f"d{count - 1}"
    assert state["older_changes"] is (count > CHANGES)


def test_losses_and_figures_that_are_missing_are_problems(channel, tmp_path):
    line = Audited(tier="counts", once=5, again=0, judges=True, at=1.0)
    loss = OpenLoss(number=3, tier="counts", place="hits/0:7", records=2, sentence="lost", found_at=1.0)
    state = shown(
        channel, tmp_path, Figures(audit=(line,), losses=(loss,), missing="PostgreSQL does not answer")
    )
    assert [(line["verdict"], line["lost"]) for line in state["audit"]] == [("LOST", 2)]
    assert [each["number"] for each in state["losses"]] == [3]
    assert state["figures_missing"] == "PostgreSQL does not answer"
    assert "No figures: PostgreSQL does not answer." in state["notes"]
    assert any("counts: 2 records are LOST" in note for note in state["notes"])


def test_an_unreadable_site_file_takes_the_shares_away_and_no_more(channel, tmp_path):
    def unreadable():
        message = "site.yaml: no such key"
        raise SiteError(message)

    state = shown(channel, tmp_path, site=unreadable)
    assert (state["shares"], len(state["tiers"])) == ([], 1)
    assert "No shares: site.yaml: no such key." in state["notes"]


def test_each_layer_of_a_share_is_shown_with_owner_and_expiry(channel, tmp_path):
    counts = Tenant("counts")
    entries = (
        LayerEntry(tenant=counts, layer=Layer.SCHEDULE, target=3, maximum="50%", owner="shift:day", at=1.0),
        LayerEntry(tenant=counts, layer=Layer.PERSON, target=5, owner="cli:anna", at=2.0, until=9.0),
        LayerEntry(tenant=counts, layer=Layer.PERSON, to="zone:b", owner="cli:ben", at=3.0),
        LayerEntry(tenant=counts, layer=Layer.PERSON, extra=2, extra_to="zone:ec2", owner="cli:eve", at=4.0),
    )
    channel.put(paths.LAYERS, Layers(entries=entries))
    layers = shown(channel, tmp_path)["layers"]
    assert [(each["layer"], each["sets"], each["owner"]) for each in layers] == [
        ("schedule", "target 3, maximum 50%", "shift:day"),
        ("person", "target 5", "cli:anna"),
        ("person", "place zone:b", "cli:ben"),
        ("person", "2 more at zone:ec2", "cli:eve"),
    ]
    assert [(each["tenant"], each["at"], each["until"]) for each in layers[:2]] == [
        ("counts", 1.0, None),
        ("counts", 2.0, 9.0),
    ]


def test_a_host_says_how_busy_its_processors_are_while_it_lives(channel, tmp_path):
    name = HostName("h1")
    facts = HostFacts(name=name, address="10.0.0.1", zone="z", cpu=4, memory=8192)
    channel.put(paths.host(name), facts)
    channel.put(paths.observed(name), Observed(agent_started=1.0, limits="cgroup v2", busy_part=0.3))
    assert [host["busy_part"] for host in shown(channel, tmp_path)["hosts"]] == [None]
    channel.put(paths.live(name), facts)
    assert [host["busy_part"] for host in shown(channel, tmp_path)["hosts"]] == [0.3]


def test_the_next_shift_comes_first_with_its_shares(channel, tmp_path):
    first, second = shown(channel, tmp_path)["shifts"]
    assert {first["name"], second["name"]} == {"day", "night"}
    assert time.time() < first["begins"] < second["begins"] < time.time() + 86_400
    night = first if first["name"] == "night" else second
    assert night["shares"] == {"enrich": "target 1", "batch": "target 1"}


def test_a_queued_batch_job_says_what_it_waits_for(channel, tmp_path):
    request = BatchRequest(tenant="reports", slots=2, by="airflow:nightly/r1", at=1.0, renewed_at=1.0)
    channel.put(paths.batch_job("nightly-r1"), request)
    channel.put(paths.BATCH_GRANTS, BatchGrants(waiting={"nightly-r1": "no slot is lent to batch"}))
    (job,) = shown(channel, tmp_path)["batch_jobs"]
    assert (job["tenant"], job["state"], job["wanted"]) == ("reports", "queued", 2)
    assert job["reason"] == "no slot is lent to batch"


def test_two_looks_at_an_unchanged_pipeline_are_equal(channel, tmp_path):
    assert shown(channel, tmp_path) == shown(channel, tmp_path)


def test_each_action_is_a_runbook_with_the_fields_of_its_form():
    found = {action["kind"]: action for action in actions(Pipeline.of(None))}
    assert found.keys() == {
        "burst",
        "leave",
        "replay",
        *(kind.name for kind in KINDS.values() if kind.runbook),
    }
    assert found["drain"]["dag_id"] == "drain_host"
    assert (found["burst"]["dag_id"], found["leave"]["dag_id"]) == ("burst_to_ec2", "leave_ec2")
    assert [field["name"] for field in found["burst"]["fields"]] == ["tier", "k"]
    assert found["replay"]["dag_id"] == "replay_tier"
    assert [field["name"] for field in found["replay"]["fields"]] == [
        "tier",
        "records",
        "begin",
        "end",
        "rate",
    ]
    (host,) = found["drain"]["fields"]
    assert (host["name"], host["type"], "default" in host) == ("host", "string", False)
    until = next(field for field in found["scale"]["fields"] if field["name"] == "until")
    assert ("default" in until, until["type"]) == (False, ["null", "string"])
