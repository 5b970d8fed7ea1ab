"""Where all processors are busy, more workers help nobody: the scaler tries once, and says why."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hits import PIPELINE
from sluice_ops.channel import Channel
from sluice_ops.snapshot.view import read_view
from tests.scenarios.live import ROOT, WAIT_SECONDS, Live, until
from tests.scenarios.oracle import DELIVERED_NUMBERS

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(3600)]

RATE = 14_000
"""Records a second, more than two cores can process."""
SETTLE_SECONDS = 90.0
"""The time until backpressure holds the entry at the rate of the slowest tier."""
MEASURE_SECONDS = 60.0
ACT_SECONDS = 240.0
LOOK_SECONDS = 3.0
LEAST = 0.9
"""The part of the rate without the scaler that has to be delivered with it."""
REASON = "no processor time left"
TIERS = [spec.name for spec in PIPELINE.specs()]


def delivered(live: Live) -> int:
    return int(live.rows("select coalesce(sum(rows_out), 0) from ledger where tier = 'outbound'")[0][0])


def rate(live: Live) -> float:
    """Measure the records that are delivered a second."""
    first, begun = delivered(live), time.monotonic()
    time.sleep(MEASURE_SECONDS)
    return (delivered(live) - first) / (time.monotonic() - begun)


@contextmanager
def overload(live: Live) -> Iterator[None]:
    """Feed more than the machine can process; at the end wait until each hit is delivered once.

    The platform's own feed goes on beside this one.
    """
    before, first = delivered(live), time.time_ns() // 10**3
    last_batch = live.rows("select coalesce(max(batch), -1) from delivered")[0][0]
    command = [str(Path(sys.executable).with_name("sluice")), "feed", "--rate", str(RATE), "--json"]
    feed = subprocess.Popen(
        [*command, "--first", str(first)], env=live.env, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        yield
        feed.send_signal(signal.SIGINT)
        fed = json.loads(feed.communicate(timeout=WAIT_SECONDS)[0])["count"]
    finally:
        feed.kill()

    def own() -> tuple[int, int]:
        query = f"select count(*), count(distinct id) from ({DELIVERED_NUMBERS}) as mine"  # noqa: S608
        rows, numbers = live.rows(query, last_batch, first, first + fed - 1)[0]
        return int(rows), int(numbers)

    until(f"{fed} records are delivered", 1200, lambda: delivered(live) - before >= fed, every=3.0)
    until("those of the feed are among them", 300, lambda: own()[1] >= fed, every=10.0)
    assert own() == (fed, fed)


def test_the_scaler_does_no_harm_where_all_processors_are_busy(live: Live) -> None:
    live.wait_for_class_data()
    attempts: Counter[str] = Counter()
    reasons: dict[str, list[str]] = defaultdict(list)

    def look(channel: Channel) -> None:
        for tier, decision in read_view(channel).scaler.decisions.items():
            if not reasons[tier] or reasons[tier][-1] != decision.reason:
                reasons[tier].append(decision.reason)
                print(f"{time.strftime('%H:%M:%S')} {tier}: {decision.reason}", flush=True)

    with overload(live), Channel(live.endpoints["zookeeper"]) as channel:
        try:
            time.sleep(SETTLE_SECONDS)
            before = rate(live)
            slots = {tier: each.slots for tier, each in read_view(channel).scaler.decisions.items()}
            begun = time.time()
            for tier in TIERS:
                live.sluice("scaler", "act", tier)
            end = time.monotonic() + ACT_SECONDS
            while time.monotonic() < end:
                look(channel)
                time.sleep(LOOK_SECONDS)
            after = rate(live)
            look(channel)
            for change in read_view(channel).changes.values():
                name, k = change.spec.tier, change.spec.k
                if change.started_at >= begun and name in slots and isinstance(k, int) and k > slots[name]:
                    attempts[name] += 1
            print(f"attempts: {dict(attempts)}")
            print(f"delivered: {before:,.0f}/s without the scaler, {after:,.0f}/s with it", flush=True)
        finally:
            for tier in TIERS:
                live.sluice("scaler", "advise", tier)
    assert max(attempts.values(), default=0) <= 1, attempts
    assert any(REASON in seen[-1] for seen in reasons.values()), reasons
    assert after >= LEAST * before
