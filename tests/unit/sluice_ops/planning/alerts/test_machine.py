"""One alert for one cause: told once, its recovery told once, also by a new leader."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.channel.client import LARGEST_BYTES
from sluice_ops.model.alert import AlertRecord, AlertRequests, AlertTest, News, Severity, Silence
from sluice_ops.planning.alerts import machine
from sluice_ops.planning.alerts.catalogue import BY_NAME
from sluice_ops.planning.alerts.machine import (
    CLEAR_SECONDS,
    EXPIRE_SECONDS,
    EXPLAINED_SECONDS,
    MOST_ALERTS,
    MOST_MESSAGES,
)

CHANNELS = {"mail": Severity.WARNING, "pager": Severity.CRITICAL}
REPEAT_SECONDS = 14_400.0


def lost(host="h1", **more):
    return BY_NAME["host-lost"].condition(host, host=host, **more)


def lags(tier="counts", *causes):
    return BY_NAME["tier-lags"].condition(tier, tier=tier, causes=causes)


HOST, LAG = lost(), lags("counts", "host-lost:h1")


class Site:
    """A record, a clock, and all messages so far."""

    def __init__(self, channels=CHANNELS):
        self.record, self.now, self.channels = AlertRecord(), 1000.0, channels
        self.requests, self.told = AlertRequests(), []

    def look(self, *conditions, after=5.0, unknown=lambda _alert: False):
        self.now += after
        before = self.record.number
        self.record = machine.advance(
            self.record,
            conditions,
            self.now,
            requests=self.requests,
            channels=self.channels,
            repeat_seconds=REPEAT_SECONDS,
            unknown=unknown,
        )
        new = [message for message in self.record.messages if message.number > before]
        self.told += new
        return [(message.news, message.key) for message in new]

    def last(self, *conditions, seconds):
        """Look every five seconds for a time; return what was told."""
        return [news for _ in range(int(seconds / 5)) for news in self.look(*conditions)]


def test_an_alert_is_told_once_after_its_wait_and_its_recovery_once():
    site = Site()
    assert site.last(HOST, seconds=HOST.wait) == [], "it has to last"
    assert site.last(HOST, seconds=3600) == [(News.FIRED, HOST.key)]
    assert site.last(seconds=CLEAR_SECONDS) == [], "it may come back"
    assert site.last(seconds=600) == [(News.RECOVERED, HOST.key)]
    assert site.record.alerts == {}
    assert [alert.key for alert in site.record.ended] == [HOST.key]


def test_a_state_that_ends_before_its_wait_is_never_told():
    site = Site()
    site.last(HOST, seconds=HOST.wait - 5)
    assert site.last(seconds=600) == []
    assert site.record.ended == ()


def test_a_flapping_state_is_one_alert():
    site = Site()
    site.last(HOST, seconds=100)
    flaps = [news for _ in range(20) for news in (*site.last(seconds=30), *site.last(HOST, seconds=30))]
    assert flaps == []


def test_an_alert_that_goes_on_is_told_again_after_a_while():
    site = Site()
    told = site.last(HOST, seconds=2.5 * REPEAT_SECONDS)
    assert told == [(News.FIRED, HOST.key), *[(News.REPEATED, HOST.key)] * 2]


def test_a_cause_is_told_and_its_effects_are_not():
    site = Site()
    assert site.last(HOST, LAG, seconds=600) == [(News.FIRED, HOST.key)]
    assert site.record.alerts[LAG.key].explained_by == HOST.key
    assert site.last(LAG, seconds=LAG.wait) == [(News.RECOVERED, HOST.key)], "the effect gets time to end"
    assert site.last(LAG, seconds=LAG.wait + 5) == [(News.FIRED, LAG.key)]


def test_an_effect_that_lasts_too_long_is_told_beside_its_cause():
    site = Site()
    told = site.last(HOST, LAG, seconds=EXPLAINED_SECONDS + LAG.wait + 60)
    assert told == [(News.FIRED, HOST.key), (News.FIRED, LAG.key)]


def test_only_a_kind_that_stands_before_it_in_the_list_explains_another():
    site = Site()
    circular = lost("h1", causes=(LAG.key,))
    assert site.last(circular, LAG, seconds=600) == [(News.FIRED, HOST.key)]


def test_an_event_is_told_once_and_its_age_is_no_recovery():
    site = Site()
    places = {"what": "drain h1", "by": "cli:anna", "again": "repeat it"}
    failed = BY_NAME["change-failed"].condition("drain_h1", ends_at=site.now + 40_000, **places)
    assert site.last(failed, seconds=39_000) == [(News.FIRED, failed.key)], "an event is not repeated"
    site.now += 1000
    assert site.last(seconds=600) == []
    assert site.record.alerts == {}


def test_an_event_whose_cause_is_gone_has_recovered():
    site = Site()
    failed = BY_NAME["change-failed"].condition(
        "drain_h1", ends_at=site.now + 40_000, what="drain h1", by="cli:anna", again="repeat it"
    )
    site.look(failed)
    assert site.last(seconds=100) == [(News.RECOVERED, failed.key)]


def test_a_silenced_alert_is_told_when_the_silence_ends_if_it_still_lasts():
    site = Site()
    silence = Silence(until=site.now + 600, by="anna", at=site.now)
    site.requests = AlertRequests(silences={"host-lost:*": silence})
    assert site.last(HOST, lost("h2"), seconds=595) == []
    assert site.last(HOST, seconds=60) == [(News.FIRED, HOST.key)], "h2 is back, and was never told"


def test_the_recovery_of_a_told_alert_is_told_in_spite_of_a_silence():
    site = Site()
    site.last(HOST, seconds=100)
    silence = Silence(until=site.now + 6000, by="anna", at=site.now)
    site.requests = AlertRequests(silences={HOST.key: silence})
    assert site.last(seconds=100) == [(News.RECOVERED, HOST.key)]


def test_a_channel_gets_what_is_severe_enough_for_it():
    site = Site()
    site.last(HOST, lags("enrich"), seconds=300)
    assert {(message.key, message.to) for message in site.told} == {
        (HOST.key, ("mail",)),
        ("tier-lags:enrich", ("mail", "pager")),
    }


def test_without_a_channel_alerts_last_and_nothing_waits():
    site = Site(channels={})
    site.last(HOST, seconds=100)
    assert site.record.messages == ()
    assert site.record.alerts[HOST.key].told_at is not None


def test_what_a_look_cannot_know_stays_as_it_is():
    site = Site()
    site.last(HOST, seconds=100)
    before = site.record.alerts
    assert site.look(after=600, unknown=lambda _alert: True) == []
    assert site.record.alerts == before


def test_a_message_waits_for_each_channel_and_is_dropped_after_a_day():
    site = Site()
    site.look(lags())
    site.look(lags(), after=LAG.wait)
    (message,) = site.record.messages
    site.record = machine.delivered(site.record, message.number, "mail", None, site.now)
    assert site.record.messages[0].to == ("pager",)
    for error in ("no route", "refused"):
        site.record = machine.delivered(site.record, message.number, "pager", error, site.now)
    assert site.record.channels["pager"].failed_since == site.now
    assert site.record.channels["pager"].error == "refused"
    site.look(after=EXPIRE_SECONDS)
    assert site.record.messages == ()
    assert site.record.dropped == 1


def test_a_test_is_sent_once_and_its_result_is_kept():
    site = Site()
    site.requests = AlertRequests(test=AlertTest(id="t1", channel=None, by="anna"))
    site.record = machine.with_test(site.record, site.requests, site.now, CHANNELS)
    (message,) = site.record.messages
    assert (message.news, message.to) == (News.TEST, ("mail", "pager"))
    assert machine.with_test(site.record, site.requests, site.now, CHANNELS) == site.record
    site.record = machine.delivered(site.record, message.number, "mail", None, site.now)
    site.record = machine.delivered(site.record, message.number, "pager", "refused", site.now)
    assert site.record.messages == (), "a test is not repeated"
    assert site.record.results == {"mail": "", "pager": "refused"}


def test_thousands_of_alerts_stay_within_one_node():
    site = Site()
    detail = "ä" * 5000
    many = [lost(f"host-with-a-long-name-{number}", detail=detail) for number in range(3000)]
    site.last(*many, seconds=100)
    site.last(*many, seconds=100)
    site.last(seconds=200)
    site.last(*many, seconds=100)
    record = site.record
    assert (len(record.alerts), len(record.messages)) == (MOST_ALERTS, MOST_MESSAGES)
    assert len(record.model_dump_json().encode()) < LARGEST_BYTES
    assert record.dropped > 0


keys = st.sampled_from(["h1", "h2", "h3"])
subjects = st.sets(keys, max_size=3)
looks = st.lists(st.tuples(subjects, subjects, st.integers(-30, 400)), max_size=40)


def run(steps, *, restarts):
    """Play looks; return the site. With `restarts`, the record goes through JSON before each."""
    site = Site()
    for hosts, tiers, seconds in steps:
        if restarts:
            site.record = AlertRecord.model_validate_json(site.record.model_dump_json())
        effects = [lags(tier, f"host-lost:{tier}") for tier in tiers]
        site.look(*map(lost, hosts), *effects, after=float(seconds))
        again = site.record
        site.look(*map(lost, hosts), *effects, after=0.0)
        assert again == site.record, "a second look at the same time tells nothing"
    return site


@given(looks)
def test_messages_of_an_alert_alternate_between_fired_and_recovered(steps):
    told = defaultdict(list)
    for message in run(steps, restarts=False).told:
        told[message.key].append(message.news)
    for news in told.values():
        assert news[::2] == [News.FIRED] * len(news[::2])
        assert news[1::2] == [News.RECOVERED] * len(news[1::2])


@given(looks)
def test_a_new_leader_tells_what_the_old_one_would_have_told(steps):
    assert run(steps, restarts=True).told == run(steps, restarts=False).told


@given(looks)
def test_nothing_is_told_before_its_wait(steps):
    site = Site()
    begun = {}
    for hosts, _, seconds in steps:
        told = site.look(*map(lost, hosts), after=float(max(0, seconds)))
        begun = {host: begun.get(host, site.now) for host in hosts}
        for news, key in told:
            if news is News.FIRED:
                assert site.now - begun[key.removeprefix("host-lost:")] >= HOST.wait


@given(looks)
def test_an_effect_is_not_told_while_its_cause_explains_it(steps):
    site = Site()
    begun = {}
    for hosts, tiers, seconds in steps:
        effects = [lags(tier, f"host-lost:{tier}") for tier in tiers]
        told = site.look(*map(lost, hosts), *effects, after=float(max(0, seconds)))
        begun = {tier: begun.get(tier, site.now) for tier in tiers}
        for news, key in told:
            name = key.partition(":")[2]
            if news is News.FIRED and key.startswith("tier-lags") and name in hosts:
                assert site.now - begun[name] >= EXPLAINED_SECONDS
