"""Every runbook, triggered in Airflow under load: no record is lost or duplicated."""

import os
import re

import pytest

from tests.scenarios.live import WAIT_SECONDS, Live, until
from tests.scenarios.oracle import Load, counts_agree

pytestmark = [pytest.mark.timeout(6000)]
LONG = pytest.mark.long

GAP_SECONDS = 1.5
"""The longest time without output in `enriched` that a drain may cause."""
FIRST_EFFECT_SECONDS, OUTSIDE_SECONDS = 5.0, 15.0
"""What a drain may take until it posts its first step, and outside the work of the data plane."""
RATE = 125
"""Records per second.

One lost record shows, and a slow machine has time left for the runbook. Ten drains measure the gap
at a higher rate.
"""
DRAINS = int(os.environ.get("SLUICE_TEST_DRAINS", "10"))


def test_a_host_is_drained_and_returned_under_load(live: Live) -> None:
    host = live.tiers()["entry"]["driver"]["host"]
    with Load(live, RATE) as load:
        live.run("drain_host", host=host)
        assert live.tier_processes_on(host) == []
        assert live.hosts()[host]["state"] == "drained"
    load.check()
    load.gap()
    live.run("return_host", host=host)
    assert live.hosts()[host]["state"] == "up"


@pytest.mark.endurance
def test_a_drain_begins_soon_and_waits_little_for_airflow(live: Live) -> None:
    live.wait_for_class_data()
    host = live.tiers()["entry"]["driver"]["host"]
    times = live.times_of("drain_host", live.run("drain_host", host=host))
    live.run("return_host", host=host)
    assert times.first_effect <= FIRST_EFFECT_SECONDS, times
    assert times.outside <= OUTSIDE_SECONDS, times


@LONG
def test_ten_drains_of_the_entry_drivers_host_leave_short_gaps(live: Live) -> None:
    for _ in range(DRAINS):
        host = live.tiers()["entry"]["driver"]["host"]
        with Load(live, 500) as load:
            live.run("drain_host", host=host)
            assert live.tier_processes_on(host) == []
        load.check()
        assert load.gap() <= GAP_SECONDS
        live.run("return_host", host=host)


@LONG
def test_a_host_is_rebooted(live: Live) -> None:
    host = live.hosts_of("enrich").pop()
    before = live.service_pid(f"agent-{host}")
    with Load(live, RATE) as load:
        run = live.run("reboot_host", host=host)
        assert live.service_pid(f"agent-{host}") != before
        assert live.hosts()[host]["state"] == "up"
    load.check()
    posted = live.sluice_json("operations", f"reboot_host.{run}")
    (said,) = [step["sentence"] for step in posted if step["step"] == "canary"]
    assert re.fullmatch(rf"{host}'s canary slot-\S+ has processed [1-9][\d,]* records", said)


@LONG
def test_a_tier_is_migrated_to_a_host(live: Live) -> None:
    target = next(name for name in sorted(live.hosts()) if name not in live.hosts_of("outbound"))
    with Load(live, RATE) as load:
        live.run("migrate_tier", tier="outbound", to=target)
    load.check()
    assert live.hosts_of("outbound") == {target}


@LONG
def test_a_tier_is_scaled_up_and_down(live: Live) -> None:
    with Load(live, RATE) as load:
        live.run("scale_tier", tier="entry", k=2)
        assert len(live.tiers()["entry"]["workers"]) == 2
        live.run("scale_tier", tier="entry", k=1)
        assert len(live.tiers()["entry"]["workers"]) == 1
    load.check()


@LONG
def test_a_micro_batch_tier_gets_and_releases_a_worker_in_place(live: Live) -> None:
    with Load(live, RATE) as load:
        before = live.tiers()["outbound"]
        live.run("scale_tier", tier="outbound", k=2)
        wider = live.tiers()["outbound"]
        assert (len(wider["workers"]), wider["incarnation"]) == (2, before["incarnation"])
        until(
            "both workers process records",
            WAIT_SECONDS,
            lambda: all(
                (slot.get("records") or 0) > 0
                for slot in live.sluice_json("slots")
                if slot["tenant"] == "outbound"
            ),
        )
        live.run("scale_tier", tier="outbound", k=1)
        after = live.tiers()["outbound"]
        assert (len(after["workers"]), after["incarnation"]) == (1, before["incarnation"])
    load.check()


@LONG
def test_a_tier_bursts_to_ec2_and_leaves_it(live: Live) -> None:
    with Load(live, RATE) as load:
        live.run("burst_to_ec2", tier="enrich", k=1)
        burst = [host for host in live.hosts().values() if host["zone"] == "ec2"]
        assert len(burst) == 1
        name = burst[0]["name"]
        assert name in live.hosts_of("enrich")
        until(
            "records are read on the burst host",
            WAIT_SECONDS,
            lambda: any(
                slot["host"] == name and (slot.get("records") or 0) > 0 for slot in live.sluice_json("slots")
            ),
        )
        live.run("leave_ec2")
        until(
            "no burst host is left",
            WAIT_SECONDS,
            lambda: not [host for host in live.hosts().values() if host["zone"] == "ec2"],
        )
    load.check()


@LONG
def test_slots_are_lent_at_night_and_come_back_by_day(live: Live) -> None:
    with Load(live, RATE) as load:
        day = len(live.tiers()["enrich"]["workers"])
        before = live.runs("nightly_report")
        live.run("night_shift")
        assert len(live.tiers()["enrich"]["workers"]) < day
        until(
            "the report that the shift starts has succeeded",
            300,
            lambda: (
                "success"
                in {state for run, state in live.runs("nightly_report").items() if run not in before}
            ),
            every=1.0,
        )
        live.run("day_shift")
        assert len(live.tiers()["enrich"]["workers"]) == day
        assert not [slot for slot in live.sluice_json("slots") if slot["tenant"] == "batch"]
    load.check()
    reported = live.rows("select coalesce(sum(views + clicks + buys), 0) from campaign_daily")[0][0]
    assert int(reported) > 0


@pytest.mark.long
def test_the_pipeline_is_paused_and_resumed(live: Live) -> None:
    with Load(live, RATE) as load:
        run = live.trigger("pause_pipeline")
        (waiting,) = until(
            "the pause waits for another person", WAIT_SECONDS, lambda: live.sluice_json("approve")
        )
        assert live.all_running(), "nothing is paused before the approval"
        live.sluice("approve", waiting["change"])
        assert live.wait_for_end("pause_pipeline", run) == "success"
        assert {tier["state"] for tier in live.tiers().values()} == {"paused"}
        delivered, fed = load.delivered(), len(load.raw.first_seen)
        until("more hits are fed", WAIT_SECONDS, lambda: len(load.raw.first_seen) > fed + 5 * RATE)
        assert load.delivered() == delivered, "nothing is delivered while paused"
        live.run("resume_pipeline")
        until("the pipeline runs", WAIT_SECONDS, live.all_running)
    load.check()


def test_a_dry_run_moves_nothing(live: Live) -> None:
    before = live.tiers()
    live.run("drain_host", host=before["entry"]["driver"]["host"], dry_run=True)
    assert {name: tier["incarnation"] for name, tier in live.tiers().items()} == {
        name: tier["incarnation"] for name, tier in before.items()
    }


def test_an_unknown_host_in_the_form_is_refused_and_nothing_moves(live: Live) -> None:
    before = live.tiers()
    done = live.sluice("drain", "nowhere", check=False)
    assert done.returncode != 0
    assert "h1" in done.stdout + done.stderr, "the message names the existing hosts"
    assert live.tiers().keys() == before.keys()
    assert live.all_running()


def test_the_counts_sum_to_the_deliveries(live: Live) -> None:
    counts_agree(live)
