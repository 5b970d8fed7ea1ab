"""New code of a tier under load: upgraded without a gap, refused, or rolled back."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.scenarios.live import WAIT_SECONDS, Live, until
from tests.scenarios.oracle import Load, counts_agree
from tests.scenarios.releases import fails_on_buys

pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]
RATE = 100


def upgrade(live: Live, tier: str) -> dict[str, Any]:
    """Upgrade a tier; return the result of each step, by step."""
    done = live.sluice("upgrade", tier, "--json", seconds=600, check=False)
    return {step["step"]: step for step in json.loads(done.stdout)["steps"]}


def test_tiers_are_upgraded_without_loss_or_duplicates(live: Live, publish: Callable[..., str]) -> None:
    with Load(live, RATE) as load:
        new = publish(
            enrich={'\n        "id", "user"': '\n        "id", F.upper("user").alias("user")'},
            outbound={
                "def deliverable(": "def shouted(kind):\n    return kind.upper()\n\n\ndef deliverable(",
                '"kind", F.time': 'F.udf(shouted, "string")("kind").alias("kind"), F.time',
            },
        )
        assert {tier["release"] for tier in live.tiers().values()} != {new}, (
            "publishing does not change running tiers"
        )
        live.run("upgrade_tier", tier="enrich")
        assert live.tiers()["enrich"]["release"] == new
        # a function that only the new code has, called by Spark's Python workers
        steps = upgrade(live, "outbound")
        assert steps["release"]["ok"], steps
        assert live.tiers()["outbound"]["release"] == new
        until(
            "both new tiers have written",
            WAIT_SECONDS,
            lambda: live.rows(
                'select 1 from delivered where "user" = upper("user") and kind = upper(kind) limit 1'
            ),
        )
    load.check()
    load.gap()
    counts_agree(live)


def test_code_that_fails_on_a_record_is_rolled_back(live: Live, publish: Callable[..., str]) -> None:
    before = live.tiers()["outbound"]
    armed = live.home / "armed"
    with Load(live, RATE) as load:
        publish(outbound=fails_on_buys(armed))
        with ThreadPoolExecutor() as pool:
            steps = pool.submit(upgrade, live, "outbound")
            try:
                until(
                    "the new code is in its trial",
                    300,
                    lambda: any(step["step"] == "trial" for step in live.sluice_json("status")["doing"]),
                )
                armed.touch()
                results = steps.result()
            finally:
                armed.unlink(missing_ok=True)
        assert "does not do well" in results["trial"]["sentence"]
        assert "ValueError" in results["trial"]["sentence"]
        assert results["abort"]["ok"], results["abort"]
        after = live.tiers()["outbound"]
        assert after["release"] == before["release"]
        assert after["incarnation"] > before["incarnation"]
    load.check()
    counts_agree(live)


def test_code_that_fails_to_plan_or_breaks_readers_changes_nothing(
    live: Live, publish: Callable[..., str]
) -> None:
    before = live.tiers()["enrich"]
    gone = live.home / "gone"
    with Load(live, RATE) as load:
        publish(
            refused='tier "enrich": the transform fails',
            enrich={"joined.select(\n": 'joined.select(\n        "nothing",\n'},
        )
        # This code can be planned where it is published, but not where its driver runs.
        fails = (
            f"    if files(__package__).joinpath({str(gone)!r}).is_file():\n        raise "
            "ValueError(UNKNOWN)\n"
        )
        publish(enrich={"    booked_ads =": f"{fails}    booked_ads ="})
        gone.touch()
        try:
            steps = upgrade(live, "enrich")
        finally:
            gone.unlink()
        assert "ValueError: unknown" in steps["prepare"]["sentence"]
        assert steps["abort"]["ok"]
        publish(__init__={'f"{HIT}, campaign string"': 'f"{HIT}, campaign bigint"'})
        assert (
            "reads column campaign as string (it is written as bigint)"
            in upgrade(live, "enrich")["preflight"]["sentence"]
        )
        after = live.tiers()["enrich"]
        assert (after["incarnation"], after["release"]) == (before["incarnation"], before["release"])
    load.check()
