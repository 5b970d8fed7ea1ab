"""The feed of the page: one look for all browsers, what changed only, and stale states."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from airflow.api_fastapi.app import lifespan
from fastapi import FastAPI
from fastapi.testclient import TestClient

from sluice_airflow.page import app as page
from sluice_airflow.page import feed as feeds
from sluice_airflow.page.feed import Feed, as_json, events
from sluice_ops.channel import ChannelAwayError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Using `httpx`")


class Source:
    """A state that a test changes, and the number of looks at it."""

    def __init__(self):
        self.state = {"tiers": [], "hosts": [{"name": "h1"}]}
        self.error = None
        self.looks = 0

    def __call__(self):
        self.looks += 1
        if self.error is not None:
            raise self.error
        return dict(self.state)


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def feed(source):
    clock = iter(range(1000, 9000))
    return Feed(source, lambda: float(next(clock)))


def parts(feed):
    return json.loads(as_json(feed.sections))


def test_answers_within_a_second_share_one_look(feed, source):
    assert feed.fresh() == feed.fresh()
    assert source.looks == 1


def test_requests_that_come_during_a_slow_look_share_it(source):
    begun, ends = threading.Event(), threading.Event()

    def slow():
        begun.set()
        assert ends.wait(30)
        return source()

    feed = Feed(slow)
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(feed.fresh) for _ in range(5)]
        assert begun.wait(30)
        ends.set()
        assert all("at" in answer.result(30) for answer in answers)
    assert source.looks == 1


def test_an_old_state_is_read_again(feed, source, monkeypatch):
    feed.fresh()
    later = time.monotonic() + feeds.FRESH_SECONDS + 0.1
    monkeypatch.setattr(feeds.time, "monotonic", lambda: later)
    feed.fresh()
    assert source.looks == 2


def test_a_failed_look_keeps_the_state_and_says_since_when_it_is_stale(feed, source):
    feed.look()
    source.error = ChannelAwayError("ZooKeeper does not answer")
    feed.look()
    feed.look()
    assert parts(feed)["stale"] == {"since": 1000.0, "sentence": "ZooKeeper does not answer"}
    assert (parts(feed)["at"], parts(feed)["hosts"]) == (1000.0, [{"name": "h1"}])
    source.error = None
    feed.look()
    assert (parts(feed)["stale"], parts(feed)["at"]) == (None, 1003.0)


def test_without_any_state_only_the_reason_is_there(feed, source):
    source.error = FileNotFoundError("no endpoints file: sluice up")
    feed.look()
    assert parts(feed) == {"stale": {"since": 1000.0, "sentence": "no endpoints file: sluice up"}}


def test_an_unexpected_error_is_shown_and_does_not_end_the_looks(feed, source, caplog):
    source.error = KeyError("lag")
    feed.look()
    assert parts(feed)["stale"]["sentence"] == "KeyError: 'lag'; see the log of Airflow's API server"
    assert "cannot read the state" in caplog.text
    source.error = None
    feed.look()
    assert parts(feed)["stale"] is None


async def gathered(feed, *, until, change=None):
    """Return the events of one stream up to the one for which `until` holds."""
    found = []

    async def here():
        return False

    async with asyncio.timeout(10):
        async for text in events(feed, here):
            if text.startswith("data: "):
                found.append(json.loads(text.removeprefix("data: ")))
                if until(found[-1]):
                    return found
                if change is not None:
                    change()
                    change = None
    raise AssertionError(found)


def test_a_stream_begins_with_the_whole_state_and_goes_on_with_changes(feed, source):
    def change():
        source.state["hosts"] = [{"name": "h1"}, {"name": "h2"}]
        feed.wake()

    first, *later = asyncio.run(
        gathered(feed, until=lambda part: len(part.get("hosts", [])) == 2, change=change)
    )
    assert first.keys() == {"at", "stale", "tiers", "hosts", "last_hour"}
    assert later[-1].keys() == {"at", "hosts"}
    assert all("tiers" not in part for part in later)


def test_two_streams_share_the_looks(feed, source):
    async def both():
        until = lambda part: "hosts" in part
        return await asyncio.gather(gathered(feed, until=until), gathered(feed, until=until))

    asyncio.run(both())
    assert source.looks <= 2


def test_a_stream_ends_when_the_browser_has_gone(feed):
    async def gone():
        return True

    async def read():
        return [text async for text in events(feed, gone)]

    assert asyncio.run(read()) == ["retry: 500\n\n"]


def test_a_stream_ends_by_itself_so_that_the_user_is_checked_again(feed, monkeypatch):
    monkeypatch.setattr(feeds, "STREAM_SECONDS", 0.0)

    async def here():
        return False

    async def read():
        return [text async for text in events(feed, here)]

    assert asyncio.run(read()) == ["retry: 500\n\n"]


def test_without_a_browser_a_changed_node_causes_no_look(feed, source):
    feed.wake()
    assert (source.looks, feed._thread) == (0, None)


def test_the_last_hour_begins_when_airflows_api_server_starts(feed, source, monkeypatch):
    monkeypatch.setattr(page, "feed_of", lambda _connection: feed)
    server = FastAPI(lifespan=lifespan)
    server.mount("/sluice", page.app)
    with TestClient(server):
        deadline = time.monotonic() + 30
        while not source.looks and time.monotonic() < deadline:
            time.sleep(0.01)
    assert source.looks, "nobody has opened the page"
