"""Which states of a simulated site are alerts, what they say, and what explains what."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from simulation.world import RULES, host, tier

from sluice_ops.model import paths
from sluice_ops.model.alert import AlertRequests, AlertSettings, News, Report, Severity
from sluice_ops.model.approval import ApprovalRule
from sluice_ops.model.assignment import HUNG_SINCE, UnitState
from sluice_ops.model.backpressure import Expiry, Lag, Pressure
from sluice_ops.model.batch import Reclaim, Reclaims
from sluice_ops.model.change import ChangeRecord, ChangeSpec, ChangeState, Operation, Plan, Result, Step
from sluice_ops.model.joining import Claim, Sealed
from sluice_ops.model.load import TierLoad
from sluice_ops.model.rolling import NOT_BEFORE
from sluice_ops.model.share import Share
from sluice_ops.model.source import Failure, SourceFigures, SourceKind, SourceRecord, TakenOver, Trouble
from sluice_ops.model.status import Loss
from sluice_ops.model.tier import Mode, Standby, TierSpec
from sluice_ops.operations.approvals import answer
from sluice_ops.operations.requests import operation_id
from sluice_ops.planning.alerts.catalogue import EVENT_SECONDS
from sluice_ops.queries.alerts import lines
from tests.unit.sluice_ops.controller.alerting.site import CHANNELS, Site, settled

DAY = 86_400


@pytest.fixture
def site():
    return settled()


def test_a_site_that_is_well_has_no_alert(site):
    site.wait(1200)
    assert site.record.alerts == {}
    assert site.record.number == 0


def test_a_lost_host_is_one_alert_although_its_tiers_move(site):
    name = site.placement("counts").driver
    site.agents[name].die()
    site.wait(120)
    assert site.fired == {f"host-lost:{name}"}
    alert = site.alert("host-lost")
    assert alert.happened == f"host {name} is lost: its agent does not answer"
    assert f"sluice write-off {name}" in alert.do
    assert alert.page == f"hosts/{name}"
    assert alert.link == f"https://airflow.example/plugin/sluice/hosts/{name}"
    site.agents[name].register()
    site.wait(180)
    assert site.record.alerts == {}
    assert site.record.ended[-1].key == alert.key


def test_the_links_of_a_pipeline_of_several_name_its_connection():
    site = Site(CHANNELS.model_copy(update={"connection": "shop"}))
    site.bring_up()
    site.channel.put(paths.loss("counts"), Loss(number=3, sentence="2 records of enriched/1 are missing"))
    site.wait(6)
    link = site.alert("records-lost").link
    assert link.startswith("https://airflow.example/plugin/sluice/")
    assert link.endswith("?connection=shop")


def test_a_written_off_host_is_no_alert_any_more(site):
    site.agents["h3"].die()
    site.wait(100)
    site.begin("w1", kind="write-off", host="h3")
    site.wait(120)
    assert "host-lost:h3" not in site.fired


def test_the_brake_is_one_alert_for_all_hosts():
    site = Site(hosts=tuple(host(f"h{number}") for number in range(1, 8)))
    site.bring_up()
    for name in list(site.agents)[:5]:
        site.agents[name].die()
    site.wait(200)
    assert site.fired == {"brake:hosts"}
    assert "nothing is moved off 5 hosts" in site.alert("brake").did


def test_a_tier_that_is_given_up_is_told_with_its_error(site):
    site.give_up("counts")
    site.wait(90)
    assert site.alert("tier-given-up").severity is Severity.CRITICAL
    assert site.alert("tier-given-up").happened.endswith("no longer starts it: failed: boom")
    assert "sluice start counts" in site.alert("tier-given-up").do
    site.want("counts", attempt=1)
    site.wait(400)
    assert not {alert for alert in site.fired if "counts" in alert}


def test_a_failed_driver_is_told_until_the_tier_is_steady(site):
    site.driver("counts").broken = {site.state("counts")}
    site.wait(30)
    assert site.alert("driver-failed").happened == "a driver of tier counts failed: incarnation 1: boom"
    site.wait(600)
    assert site.record.alerts == {}


def test_a_killed_driver_that_is_replaced_is_no_alert(site):
    site.kill_driver("counts")
    site.wait(700)
    assert site.record.number == 0


def test_a_tier_without_room_is_told_after_ten_minutes():
    site = Site(hosts=(host("h1", cpu=4),))
    site.want("entry", "enrich", "counts", "outbound")
    site.wait(590)
    assert not any(alert.startswith("tier-down") for alert in site.fired)
    waits = next(line for line in lines(site.record, AlertRequests()) if line.key.startswith("tier-down"))
    assert "should run and does not: " in waits.happened, "no time is told before it is over"
    site.wait(60)
    assert any(alert.startswith("tier-down") for alert in site.fired)
    assert "cannot start" in next(
        alert.happened for alert in site.record.alerts.values() if alert.kind == "tier-down"
    )


def failed_drain(site):
    """Begin a drain that fails, because the next driver does."""
    name = site.placement("counts").driver
    runbook = site.begin("d1", kind="drain", host=name)
    site.until(lambda: site.next_driver("counts") is not None)
    site.next_driver("counts").broken = {site.next_driver("counts").state}
    site.until(lambda: runbook.ended)
    assert not runbook.ok
    return name


def test_a_failed_change_is_one_alert_whoever_asked(site):
    name = failed_drain(site)
    site.wait(10)
    alert = site.alert("change-failed")
    assert site.fired == {f"change-failed:drain_{name}"}, "the driver's failure is no alert of its own"
    assert alert.happened.startswith(f"drain {name} failed (requested by test): ")
    assert "boom" in alert.happened
    assert alert.did == "the change was undone: every tier goes on with the incarnation that ran"


def test_a_reboot_whose_host_is_not_proved_is_one_alert(site):
    for log in site.logs.values():
        log.first_records = None
    site.begin("b1", kind="reboot", host="h1")
    site.wait(200)
    assert site.fired == {"change-failed:reboot_h1"}
    happened = site.alert("change-failed").happened
    assert "processed no record in 60 s" in happened
    assert "h1 is cordoned" in happened


def test_the_same_change_that_succeeds_later_ends_the_alert(site):
    name = failed_drain(site)
    site.wait(10)
    site.begin("d2", kind="drain", host=name)
    site.wait(200)
    assert site.record.alerts == {}
    assert site.record.ended[-1].key == f"change-failed:drain_{name}"


def test_the_upgrade_to_a_next_release_ends_the_alert_of_a_bad_one(site):
    def ended(release, state):
        spec = ChangeSpec(kind="upgrade", tier="counts", release=release)
        times = {"started_at": site.wall(), "ended_at": site.wall()}
        record = ChangeRecord(id=release, spec=spec, plan=Plan(), state=state, by="cli:anna", **times)
        site.channel.put(paths.change(record.id), record)
        site.wait(100)

    ended("r2-bad0", ChangeState.ABORTED)
    assert site.fired == {"change-failed:upgrade_counts"}
    assert site.alert("change-failed").happened.startswith("upgrade counts release=r2-bad0 failed")
    ended("r3-900d", ChangeState.DONE)
    assert (site.fired, site.record.ended[-1].key) == (set(), "change-failed:upgrade_counts")


def test_a_failed_change_that_nobody_repeats_is_forgotten_after_a_day(site):
    failed_drain(site)
    site.wait(10)
    number = site.record.number
    site.now += EVENT_SECONDS
    site.wait(60)
    assert site.record.alerts == {}
    assert site.record.number == number, "nothing has recovered"


def refuse(site, by, *, dry_run=False, change="x1", result=None):
    operation = Operation(
        id=operation_id(change, Step.PREFLIGHT),
        change=change,
        step=Step.PREFLIGHT,
        spec={"kind": "shift", "shift": "night"},
        by=by,
        posted_at=site.wall(),
        dry_run=dry_run,
    )
    site.channel.put(paths.operation(operation.id), operation)
    refused = Result(ok=False, sentence="refused: no room", finished_at=site.wall())
    site.channel.put(paths.result(operation.id), result or refused)
    site.wait(10)


def test_a_refused_runbook_is_told_with_a_link_to_its_run(site):
    refuse(site, "airflow:night_shift/scheduled__1")
    alert = site.alert("change-refused")
    assert alert.link == "https://airflow.example/dags/night_shift/runs/scheduled__1"
    assert alert.do == "remove the cause, then trigger night_shift in Airflow again"


def test_a_refused_dry_run_of_the_schedule_is_told_until_one_is_well(site):
    refuse(site, "airflow:night_shift/scheduled__1", dry_run=True)
    assert site.alert("change-refused").happened.startswith("dry run of shift night was refused")
    well = Result(ok=True, sentence="planned", finished_at=site.wall() + 1)
    refuse(site, "airflow:night_shift/scheduled__2", dry_run=True, change="x2", result=well)
    site.wait(120)
    assert site.record.alerts == {}


@pytest.mark.parametrize(
    ("by", "dry_run"),
    [("cli:anna", False), ("cli:anna", True), ("airflow:x/manual__1", True), ("page", True)],
)
def test_a_refusal_that_its_author_has_read_is_not_told(site, by, dry_run):
    refuse(site, by, dry_run=dry_run)
    assert site.record.alerts == {}


def test_a_batch_of_hosts_that_came_too_early_is_not_told(site):
    details = {NOT_BEFORE: site.wall() + 900}
    early = Result(ok=False, sentence="not begun", finished_at=site.wall(), details=details)
    refuse(site, "airflow:rolling_reboot/manual__1", result=early)
    assert site.record.alerts == {}
    opens = site.wall() + 100_000
    window = SimpleNamespace(opens=lambda _now: opens)
    rule = ApprovalRule(always=("reboot-hosts",))
    site.rules = replace(site.rules, approval=rule, reboot_window=window)
    runbook = site.begin("c1", kind="reboot-hosts", hosts=("h1",), by="airflow:rolling_reboot/manual__1")
    site.wait(10)
    answer(site.channel, "c1", "cli:ben", approved=True)
    site.wait(200)
    assert NOT_BEFORE in runbook.results[Step.PREFLIGHT].details
    assert site.record.alerts == {}


def test_lost_records_are_told_at_once_until_they_are_settled(site):
    site.channel.put(paths.loss("counts"), Loss(number=3, sentence="2 records of enriched/1 are missing"))
    site.wait(6)
    assert site.alert("records-lost").happened.endswith("are lost: 2 records of enriched/1 are missing")
    site.channel.delete(paths.loss("counts"))
    site.wait(90)
    assert site.record.alerts == {}


def test_a_lag_is_told_after_two_minutes_but_not_the_backlog_of_a_start(site):
    lag = Lag(records=200_000, seconds=300)
    site.report("counts", measured=True, pressure=Pressure(stream="in", lag=lag, since=site.wall()))
    site.wait(300)
    assert "tier-lags:counts" not in site.fired, "the tier has just started"
    site.wait(1800)
    site.report("counts", measured=True, pressure=Pressure(stream="in", lag=lag, since=site.wall()))
    site.wait(100)
    site.report("counts", measured=True, pressure=Pressure(stream="in", lag=lag, since=site.wall()))
    site.wait(60)
    assert "tier-lags:counts" in site.fired
    assert "counts is 200000 records, 300 s behind in in" in site.alert("tier-lags").happened


def test_a_tier_that_may_lag_warns_and_its_expiring_backlog_is_critical(site):
    spec = site.channel.read(paths.tier("counts"), TierSpec).value
    site.channel.put(paths.tier("counts"), spec.model_copy(update={"holds": False}))
    site.wait(1900)
    kept = Expiry(stream="in", kept=10_000, left=5100)
    lag = Pressure(stream="in", lag=Lag(records=200_000, seconds=4900), since=site.wall(), expiry=kept)
    site.report("counts", measured=True, pressure=lag)
    site.wait(700)
    assert site.fired == {"branch-lags:counts"}
    gone = lag.model_copy(update={"expiry": kept.model_copy(update={"left": 4900.0})})
    site.report("counts", measured=True, pressure=gone)
    site.wait(70)
    assert site.fired == {"branch-lags:counts", "backlog-expires:counts"}
    assert (
        "Kafka deletes the oldest of these records of in in 1.4 h" in site.alert("backlog-expires").happened
    )


def test_a_growing_quarantine_is_told_after_ten_minutes(site):
    node = paths.load("counts", site.owner("counts").owner)
    usual = {"at": 1.0, "rate_in": 100.0, "rate_out": 100.0, "workers": 1, "lag": 0, "lag_seconds": 0.0}
    site.channel.put(node, TierLoad(rate_done=100.0, rate_quarantined=0.9, **usual))
    site.wait(700)
    assert site.record.alerts == {}
    site.channel.put(node, TierLoad(rate_done=100.0, rate_quarantined=2.5, **usual))
    site.wait(620)
    assert "2.5 of 100 records/s are bad" in site.alert("quarantine-grows").happened


def test_a_share_that_the_tier_does_not_get_is_told():
    shares = {**RULES.shares, "enrich": Share(minimum=1, target=4, maximum=4)}
    site = Site(rules=replace(RULES, shares=shares), hosts=(host("h1", cpu=6), host("h2", cpu=2)))
    site.want()
    site.wait(1000)
    assert {alert.partition(":")[0] for alert in site.fired} == {"share-short"}


def test_a_tier_that_is_light_no_more_lacks_no_workers_before_its_upgrade():
    light = tier("enrich", Mode.BATCH, 0, light=True)
    site = Site(tiers=(light,))
    site.publish("r1-light")
    site.bring_up()
    site.specs["enrich"] = light.model_copy(update={"light": False})
    site.publish("r2-with-workers")
    site.wait(1000)
    assert (site.placement("enrich").slots, site.record.alerts) == ((), {})


def test_a_missing_standby_is_told_and_a_standby_that_is_there_is_not():
    tiers = (tier("counts", Mode.BATCH, 0, standby=Standby.WARM),)
    site = Site(tiers=tiers, hosts=(host("h1"), host("h2")))
    site.want()
    site.wait(700)
    assert site.record.alerts == {}
    site = Site(tiers=tiers, hosts=(host("h1"),))
    site.want()
    site.wait(700)
    assert site.fired == {"standby-missing:counts"}


def test_a_certificate_is_told_three_weeks_before_its_end(site):
    site.certificates = {"/etc/sluice/ca.pem": site.wall() + 22 * DAY}
    site.wait(10)
    assert site.record.alerts == {}
    site.certificates = {"/etc/sluice/ca.pem": site.wall() + 20 * DAY}
    site.wait(10)
    assert "/etc/sluice/ca.pem" in site.alert("certificate-ends").happened


def test_an_unused_token_is_told_in_the_last_quarter_of_its_life(site):
    site.channel.clock = site.wall()
    site.channel.put(paths.joining("h9"), Sealed(seconds=400.0, known_as="joiner:x", data="…"))
    site.wait(290)
    assert site.record.alerts == {}
    site.wait(20)
    alert = site.alert("token-ends")
    assert (alert.subject, "sluice token h9.token --host h9" in alert.do) == ("h9", True)
    site.wait(100)
    assert site.record.alerts == {}
    assert [message.news for message in site.record.messages] == [News.FIRED], "an end is no recovery"


def test_a_token_that_a_machine_has_claimed_is_not_told(site):
    site.channel.clock = site.wall()
    site.channel.put(paths.joining("h9"), Sealed(seconds=40.0, known_as="joiner:x", data="…"))
    site.channel.put(paths.claim("h9"), Claim(public="…", machine="new"))
    site.wait(60)
    assert site.record.alerts == {}


def test_a_slot_that_hung_is_told_once_and_each_hang_anew(site):
    agent = site.agents["h1"]
    slot = next(unit for unit in agent.units if unit.startswith("slot-"))

    def hang(since, restarts):
        reason = f"killed ({HUNG_SINCE} {since} UTC: its Worker was stopped; its agent ended it)"
        agent.units[slot] = (UnitState.STARTING, reason, site.wall())
        site.wait(2)
        agent.units[slot] = (UnitState.RUNNING, reason, site.wall())
        agent.restarts[slot] = restarts
        site.wait(60)

    hang("18:03:22", 1)
    alert = site.alert("process-hung")
    assert alert.happened.startswith("a slot on h1 hung: killed (hung since 18:03:22 UTC: its Worker")
    assert alert.page == "hosts/h1"
    assert site.fired == {f"process-hung:h1/{slot}/18:03:22"}
    hang("19:00:00", 2)
    assert site.fired == {f"process-hung:h1/{slot}/19:00:00"}, "the slot tells its last hang"
    site.ahead += DAY
    site.wait(120)
    assert site.record.alerts == {}


def test_an_agent_that_hung_is_told_once_by_the_next_one(site):
    hung_at = site.wall()
    site.agents["h2"].notice = {"agent_hung_at": hung_at}
    site.wait(60)
    alert = site.alert("process-hung")
    assert alert.key == f"process-hung:h2/agent/{hung_at:.0f}"
    assert alert.happened == "a host agent on h2 hung"
    assert alert.did == "the host agent was ended, and another one replaced it"
    site.ahead += DAY
    site.wait(120)
    assert site.record.alerts == {}


def test_an_instance_without_work_is_told_after_half_an_hour(site):
    site.add_host(host("ec2-1", zone="ec2"))
    site.wait(1900)
    assert site.fired == {"instance-idle:ec2-1"}


def test_a_site_file_that_cannot_be_used_is_told(site):
    site.rules = replace(site.rules, refused="hosts: two hosts have the name h1")
    site.wait(90)
    assert site.alert("site-refused").happened.endswith("two hosts have the name h1")


def test_while_nothing_is_decided_alerts_neither_begin_nor_end(site):
    site.agents["h3"].die()
    site.wait(120)
    site.blocked = True
    site.agents["h3"].register()
    site.wait(300)
    assert site.fired == {"host-lost:h3", "channel-unreadable:channel"}
    site.blocked = False
    site.wait(300)
    assert site.record.alerts == {}


def test_a_gap_above_the_limit_is_told_once():
    site = Site(settings=AlertSettings(gap_seconds=5))
    site.bring_up()
    site.report("counts", gap_seconds=5.0)
    site.wait(10)
    assert site.record.alerts == {}
    site.report("counts", gap_seconds=7.0)
    site.wait(10)
    assert site.alert("gap").happened.endswith("7 s; the limit is 5 s")


def test_a_task_that_hangs_is_told_and_explains_the_lag(site):
    site.wait(60)
    lag = Pressure(stream="in", lag=Lag(records=200_000, seconds=300), since=1.0)
    site.report("counts", hung="task 3 has processed nothing for 60 s", measured=True, pressure=lag)
    site.wait(200)
    assert site.fired == {"task-hangs:counts"}
    assert site.alert("task-hangs").happened.endswith("nothing for 60 s")
    assert site.alert("tier-lags").explained_by == "task-hangs:counts"


def test_a_task_that_failed_in_airflow_is_told_once_and_is_never_over(site):
    failure = Report(
        what="report of nightly_report",
        reason="no slot is lent",
        did="Nothing.",
        do="Run the shift night first.",
        link="https://airflow.example/log",
        at=site.wall(),
    )
    site.channel.put(paths.ALERT_REQUESTS, AlertRequests(reports={"nightly_report.report": failure}))
    site.wait(10)
    alert = site.alert("task-failed")
    assert alert.happened == "report of nightly_report failed in Airflow: no slot is lent"
    assert (alert.do, alert.link) == (failure.do, failure.link)
    site.channel.put(paths.ALERT_REQUESTS, AlertRequests())
    site.wait(100)
    assert (site.record.alerts, site.record.number) == ({}, 1)


def test_a_slot_of_batch_that_comes_back_late_is_told_once(site):
    def reclaim(number, seconds):
        return Reclaim(
            slot=f"slot-batch-0-{number}", host="h2", at=site.wall(), by="counts", limit=60, seconds=seconds
        )

    site.channel.put(paths.BATCH_RECLAIMS, Reclaims(ended=(reclaim(0, 59.0), reclaim(1, 75.5))))
    site.wait(30)
    alert = site.alert("reclaim-late")
    assert len(site.fired) == 1
    assert "slot-batch-0-1 on h2, after 75.5 s; the limit is 60 s; for counts" in alert.happened
    assert "`sluice batch`" in alert.do
    for _ in range(DAY // 600):
        assert len(site.record.alerts) == 1
        site.tick(600.0)
    assert not site.fired


def test_an_abort_without_an_answer_and_its_change_are_one_alert(site):
    failure = Report(
        what="abort of drain_host",
        reason="step abort has no result",
        did="It waits.",
        do="sluice status",
        change="drain_host.run1",
        at=site.wall(),
    )
    site.channel.put(paths.ALERT_REQUESTS, AlertRequests(reports={"drain_host.abort": failure}))
    spec = ChangeSpec(kind="drain", host="h1")
    record = ChangeRecord(
        id="drain_host.run1",
        spec=spec,
        plan=Plan(),
        state=ChangeState.ABORTED,
        by="airflow:drain_host/run1",
        started_at=site.wall(),
        ended_at=site.wall(),
    )
    site.channel.put(paths.change(record.id), record)
    site.wait(1000)
    assert site.fired == {"change-failed:drain_h1"}
    site.channel.put(paths.change(record.id), record.model_copy(update={"id": "another"}))
    site.channel.delete(paths.change(record.id))
    site.wait(10)
    assert any(key.startswith("task-failed") for key in site.fired)


def test_a_change_that_waits_is_one_alert_until_its_answer(site):
    site.rules = replace(site.rules, approval=ApprovalRule(within_seconds=600))
    site.begin("c1", kind="pause", by="cli:anna")
    site.wait(100)
    assert site.fired == {"change-waits:c1"}
    alert = site.alert("change-waits")
    assert alert.happened.startswith("pause, asked by cli:anna, waits for the approval of another person: a")
    assert "without one in 10 min, the change ends as refused" in alert.did
    assert "`sluice approve c1`" in alert.do
    answer(site.channel, "c1", "cli:ben", approved=True)
    site.wait(200)
    assert site.record.alerts == {}


def test_a_change_that_nobody_approves_is_told_as_refused_whoever_asked(site):
    site.rules = replace(site.rules, approval=ApprovalRule(within_seconds=30))
    site.begin("c1", kind="pause", by="cli:anna")
    site.wait(120)
    assert "change-refused:pause" in site.fired
    assert "nobody approved it within 30 s" in site.alert("change-refused").happened


def test_a_change_waits_while_an_alert_lasts_if_the_site_file_says_so(site):
    site.rules = replace(site.rules, approval=ApprovalRule(always=(), alerts=True))
    site.agents["h3"].die()
    site.wait(100)
    assert "host-lost:h3" in site.fired
    runbook = site.begin("c1", kind="pause", by="cli:anna", tier="counts")
    site.wait(10)
    assert not runbook.ended
    assert "while alerts last: host-lost:h3" in site.alert("change-waits").happened


def source(site, name="web", *, live=True, **fields):
    """Put a source of the stream `raw` into the channel."""
    record = SourceRecord(
        name=name,
        stream="raw",
        kind=SourceKind.HTTP,
        where="http://127.0.0.1:8080",
        host="h1",
        pid=1,
        identity="a",
        since=site.wall(),
    ).model_copy(update=fields)
    site.channel.put(paths.source(record.id), record)
    if live:
        site.channel.put(paths.source_live(record.id), SourceFigures(identity="a", at=1.0))


def gone(site, name="web"):
    """End the process of a source as a kill does."""
    site.channel.delete(paths.source_live(f"{name}@raw"))


def test_a_source_that_runs_or_was_stopped_is_no_alert(site):
    source(site)
    site.wait(60)
    gone(site)
    site.channel.delete(paths.source("web@raw"))
    site.wait(120)
    assert site.record.number == 0


def test_a_source_that_is_gone_is_one_critical_alert_with_the_way_out(site):
    source(site)
    site.wait(10)
    gone(site)
    site.wait(20)
    assert site.fired == set()
    site.wait(30)
    assert site.fired == {"source-down:web@raw"}
    alert = site.alert("source-down")
    assert (alert.severity, alert.happened) == (
        Severity.CRITICAL,
        "source web of stream raw on h1 is gone",
    )
    assert "sluice ingest forget web --stream raw" in alert.do


def test_the_reason_that_a_source_left_is_told(site):
    source(site, live=False, ended="Kafka refuses the source web")
    site.wait(60)
    assert site.alert("source-down").happened.endswith("is gone: Kafka refuses the source web")


def test_a_source_that_failed_is_told_until_the_next_one_is_steady(site):
    source(site, failures=(Failure(at=1.0, how="one of its loops hung"),))
    site.wait(10)
    assert site.fired == {"source-failed:web@raw"}
    assert site.alert("source-failed").happened.endswith("failed: one of its loops hung")
    site.wait(400)
    assert site.record.alerts == {}


def test_a_source_whose_loss_was_told_is_not_told_again_at_its_return(site):
    source(site)
    site.wait(10)
    gone(site)
    site.wait(60)
    source(site, failures=(Failure(at=1.0, how="its process was gone"),))
    site.wait(300)
    keys = {alert.key for alert in (*site.record.alerts.values(), *site.record.ended)}
    assert keys == {"source-down:web@raw"}


def test_a_lost_host_explains_its_sources(site):
    name = site.placement("counts").driver
    source(site, host=name)
    source(site, "far", host="elsewhere")
    site.wait(10)
    site.agents[name].die()
    gone(site)
    gone(site, "far")
    site.wait(120)
    told_keys = {alert.key for alert in site.record.alerts.values() if alert.told_at is not None}
    assert told_keys == {f"host-lost:{name}", "source-down:far@raw"}


def test_sources_that_wait_for_kafka_are_one_alert_of_their_stream(site):
    trouble = Trouble(since=site.wall(), sentence="Kafka does not answer")
    source(site, trouble=trouble)
    source(site, "app", trouble=trouble)
    site.wait(60)
    assert site.fired == {"source-stands-still:raw"}
    assert site.alert("source-stands-still").happened == (
        "records wait for stream raw, and Kafka takes none of them: "
        "app on h1: Kafka does not answer; web on h1: Kafka does not answer"
    )


def test_a_source_that_lost_its_name_is_an_event(site):
    source(site, host="h2")
    taken = TakenOver(host="h1", pid=1, sentence="taken over by h2, process 7", at=site.wall())
    site.channel.put(paths.source_taken("web@raw"), taken)
    site.wait(20)
    assert {key.partition("/")[0] for key in site.fired} == {"source-taken-over:web@raw"}
    assert "disable sluice-ingest@web on h1" in site.alert("source-taken-over").do
    site.wait(20)
    assert site.record.number == 1
