"""The shipped pipeline at more records than it can process: its highest sustainable rate, and what
backpressure makes of a higher rate.
"""

import time

import pytest

from hits import PIPELINE
from tests.bench.conftest import save
from tests.lab import Lab, until
from tests.throttling import Throttle

pytestmark = pytest.mark.timeout(3600)

RATE = 14_000
SECONDS = 150.0
SETTLE_SECONDS = 60.0
"""The time until the rate and the lags have settled."""
TIERS = {spec.name: spec for spec in PIPELINE.specs()}
WARM_RATE, WARM_SECONDS = 4_000, 60.0
LOWEST, HIGHEST, STEPS = 6_000, 14_000, 5
"""The rates between which the highest sustainable one is searched."""
TRIAL_SECONDS = 20.0
GROWTH = 0.03
"""A rate is sustained if at most this part of the records stays in the pipeline."""
LIMIT = 100_000
"""The high watermark of each stream of the shipped pipeline."""


def lags(lab: Lab) -> dict[str, int]:
    """Return the records that wait for each tier, as its driver measured them last."""
    return {str(tier): int(lag) for tier, lag in lab.query("select tier, lag from tier_progress")}


def delivered(lab: Lab) -> int:
    """Return the records that the last tier has delivered, as its ledger tells."""
    return int(lab.query("select coalesce(sum(rows_out), 0) from ledger where tier = 'outbound'")[0][0])


def drain(lab: Lab) -> None:
    """Wait until no record waits, and a look more."""
    until("no records wait", lambda: sum(lags(lab).values()) < 1_000, 600)
    time.sleep(5.0)


def is_sustained(lab: Lab, rate: int) -> bool:
    """Offer a rate, and tell whether the waiting records do not grow."""
    lab.start_feed(rate)
    time.sleep(TRIAL_SECONDS)
    before = sum(lags(lab).values())
    time.sleep(TRIAL_SECONDS)
    grown = sum(lags(lab).values()) - before
    lab.stop_feed()
    drain(lab)
    print(f"{rate}/s: {grown} more records wait after {TRIAL_SECONDS:.0f} s")
    return grown <= GROWTH * rate * TRIAL_SECONDS


def highest_sustainable(lab: Lab) -> int:
    low, high = LOWEST, HIGHEST
    for _ in range(STEPS):
        middle = (low + high) // 2
        low, high = (middle, high) if is_sustained(lab, middle) else (low, middle)
    return low


def test_overload(flowing: Lab) -> None:
    lab = flowing
    lab.start_feed(WARM_RATE)
    time.sleep(WARM_SECONDS)
    lab.stop_feed()
    drain(lab)
    highest = highest_sustainable(lab)
    throttle = Throttle(lab, TIERS, "entry")
    throttle.register_as_leader()
    first, looks = delivered(lab), []
    lab.start_feed(RATE)
    begun = time.monotonic()
    while (now := time.monotonic() - begun) < SECONDS:
        throttle.step()
        looks.append(
            (round(now, 1), delivered(lab) - first, lags(lab), throttle.now.held_for, throttle.now.admitted)
        )
        time.sleep(1.0)
    fed = lab.stop_feed()

    def all_delivered() -> bool:
        throttle.step()
        return delivered(lab) - first >= fed

    until("every hit is delivered", all_delivered, 900)
    took = time.monotonic() - begun
    settled = [look for look in looks if look[0] >= SETTLE_SECONDS]
    sustained = (settled[-1][1] - settled[0][1]) / (settled[-1][0] - settled[0][0])
    later = [tier for tier in TIERS if tier != "entry"]
    culprits = {look[3] for look in settled}
    most, most_settled = (
        {tier: max(look[2][tier] for look in part) for tier in later} for part in (looks, settled)
    )
    save(
        "overload",
        {
            "rate": RATE,
            "highest_sustainable": highest,
            "sustained": round(sustained),
            "part": round(sustained / highest, 3),
            "fed": fed,
            "seconds_to_deliver_all": round(took, 1),
            "throttled": throttle.begun,
            "orders": throttle.written,
            "culprits": sorted(culprits),
            "most_waiting": most,
            "most_waiting_settled": most_settled,
            "looks": looks,
        },
    )
    assert sustained >= 0.95 * highest
    assert throttle.begun == 1
    assert len(culprits) == 1, f"the entry is throttled for one tier, and not in turns for {culprits}"
    assert {tier: lag for tier, lag in most_settled.items() if lag >= LIMIT} == {}
