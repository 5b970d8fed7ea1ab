"""The record is written before a message is sent. A controller that dies at any write loses
nothing.
"""

from dataclasses import replace

import pytest

from sluice_ops.channel import ConflictError
from sluice_ops.controller.alerting.delivery import Sent
from sluice_ops.model import paths
from sluice_ops.model.alert import AlertRequests, AlertTest, News, Silence
from sluice_ops.model.change import EpochRecord
from sluice_ops.model.status import Loss
from tests.unit.sluice_ops.controller.alerting.site import settled


@pytest.fixture
def site():
    return settled()


def lose_records(site, number=1):
    site.channel.put(paths.loss("counts"), Loss(number=number, sentence=f"loss {number}"))


def send(site):
    """Let the channel take everything that is offered; return the news."""
    told = [(message.news, message.key) for message in site.delivery.offered]
    site.delivery.sent += told
    site.delivery.waiting += [
        Sent(message.number, name, None) for message in site.delivery.offered for name in message.to
    ]
    site.delivery.offered = ()
    return told


def test_a_message_is_sent_once_and_leaves_the_record_when_it_was_taken(site):
    lose_records(site)
    site.wait(6)
    assert send(site) == [(News.FIRED, "records-lost:counts")]
    site.wait(6)
    assert site.record.messages == ()
    assert site.record.channels["json"].sent_at is not None
    site.wait(600)
    assert send(site) == []


def test_a_failed_delivery_is_kept_and_offered_again(site):
    lose_records(site)
    site.wait(6)
    (message,) = site.delivery.offered
    site.delivery.waiting = [Sent(message.number, "json", "no route to the host")]
    site.wait(6)
    assert site.record.channels["json"].error == "no route to the host"
    assert [each.number for each in site.delivery.offered] == [message.number]


class KilledError(Exception):
    """The controller dies."""


@pytest.mark.parametrize("dies_at", range(1, 8))
@pytest.mark.parametrize("after_the_write", [False, True])
def test_a_death_at_any_write_loses_nothing_and_repeats_at_most_one(site, dies_at, after_the_write):
    writes, write = 0, site.channel.multi

    def mortal(requests):
        nonlocal writes
        if not any(request.path in {paths.ALERTS, paths.ALERT_REQUESTS} for request in requests):
            write(requests)
            return
        writes += 1
        if writes == dies_at and not after_the_write:
            raise KilledError
        write(requests)
        if writes == dies_at:
            raise KilledError

    site.channel.multi = mortal

    def play(seconds):
        for _ in range(seconds):
            try:
                site.tick()
            except KilledError:
                site.delivery.stop()
                site.take_office()
            send(site)

    lose_records(site)
    play(40)
    site.channel.delete(paths.loss("counts"))
    play(120)
    lose_records(site, 2)
    play(40)
    key = "records-lost:counts"
    expected = [(News.FIRED, key), (News.RECOVERED, key), (News.FIRED, key)]
    told = site.delivery.sent
    distinct = [news for number, news in enumerate(told) if number == 0 or told[number - 1] != news]
    assert distinct == expected, "nothing is lost, and nothing is out of order"
    assert len(told) <= len(expected) + 1, "only what was sent and not recorded is sent again"


def test_a_deposed_leader_writes_nothing(site):
    lose_records(site)
    site.channel.put(paths.EPOCH, EpochRecord(epoch=2, leader="c2"))
    old = site.channel.version

    def stale(path):
        return old(path) - 1 if path == paths.EPOCH else old(path)

    site.channel.version = stale
    with pytest.raises(ConflictError):
        site.wait(6)
    assert site.delivery.offered == ()
    assert site.record.alerts == {}


def test_an_unreadable_record_begins_anew(site):
    lose_records(site)
    site.wait(6)
    site.channel.nodes[paths.ALERTS] = ("{", 7, None)
    site.take_office()
    site.wait(6)
    assert site.fired == {"records-lost:counts"}


def test_silences_and_tests_come_from_the_operators_node(site):
    site.wait(6)
    assert site.channel.exists(paths.ALERT_REQUESTS), "the leader makes it, so that operators may write"
    silence = Silence(until=site.wall() + 300, by="anna", at=site.wall())
    requests = AlertRequests(
        silences={"records-lost:*": silence}, test=AlertTest(id="t1", channel="json", by="anna")
    )
    site.channel.put(paths.ALERT_REQUESTS, requests)
    lose_records(site)
    site.wait(6)
    assert send(site) == [(News.TEST, "test:t1")]
    site.wait(6)
    assert (site.record.tested, site.record.results) == ("t1", {"json": ""})
    site.wait(400)
    assert send(site) == [(News.FIRED, "records-lost:counts")]


def test_the_record_is_not_written_while_nothing_changes(site):
    lose_records(site)
    site.wait(6)
    send(site)
    site.wait(6)
    version = site.channel.version(paths.ALERTS)
    site.wait(300)
    assert site.channel.version(paths.ALERTS) == version


def test_a_channel_that_the_site_file_does_not_name_any_more_is_forgotten(site):
    lose_records(site)
    site.wait(6)
    settings = site.rules.alerts.model_copy(update={"channels": ()})
    site.rules = replace(site.rules, alerts=settings)
    site.wait(6)
    assert site.record.messages == ()
    assert site.record.channels == {}
    assert site.record.dropped == 0
