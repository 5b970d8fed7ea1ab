"""Durability of streams: which streams would lose acknowledged records with one broker's disk, and
what a site file may require.
"""

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.kafka.durability import Kept, refusal, too_few_brokers, weaknesses
from sluice_ops.model.kafka_access import ONE_COPY, Durability
from sluice_ops.site.site_file import SiteError, load

KEPT = st.builds(Kept, st.integers(1, 5), st.integers(1, 5), st.booleans())
SITES = st.integers(2, 5).flatmap(
    lambda replication: st.builds(Durability, st.just(replication), st.integers(2, replication))
)


@given(KEPT, SITES)
def test_a_stream_that_is_not_refused_survives_any_one_disk(stored: Kept, wanted: Durability) -> None:
    if (
        weaknesses({"hits": stored}, wanted) or stored.in_sync > stored.replication
    ):  # with too few replicas, Kafka acknowledges no record
        return
    brokers = range(stored.replication)
    for in_sync in combinations(brokers, stored.in_sync):  # the fewest brokers with an acknowledged record
        for lost in brokers:
            assert set(in_sync) - {lost}
    assert not stored.unclean


@given(KEPT)
def test_a_site_that_accepts_one_copy_accepts_any_stream(stored: Kept) -> None:
    assert weaknesses({"hits": stored}, ONE_COPY) == []


def test_each_weakness_is_named_with_its_stream_and_the_correction() -> None:
    streams = {"raw": Kept(1, 1), "hits": Kept(3, 2, unclean=True), "enriched": Kept(3, 2)}
    set_on = "kafka-configs.sh --alter --entity-type topics --entity-name"
    assert weaknesses(streams, Durability(3, 2)) == [
        (
            "stream hits lets a replica lead that lacks acknowledged records; "
            f"{set_on} hits --add-config unclean.leader.election.enable=false"
        ),
        "stream raw has 1 of 3 replicas; add them with kafka-reassign-partitions.sh --reassignment-json-file",
        (
            "stream raw acknowledges with 1 of 2 brokers in sync; "
            f"{set_on} raw --add-config min.insync.replicas=2"
        ),
    ]


def test_a_refusal_names_the_line_that_accepts_the_loss(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLUICE_SITE", str(tmp_path / "site.yaml"))
    shortage = too_few_brokers(1, Durability(3, 2))
    assert shortage == (
        "the site wants each record on 3 brokers (replication), and Kafka has 1; start more brokers"
    )
    assert refusal([shortage]).endswith(
        f"accept the loss by this line in {tmp_path / 'site.yaml'}:\nreplication: 1"
    )
    assert too_few_brokers(3, Durability(3, 2)) is None


@pytest.mark.parametrize(
    ("lines", "durability"),
    [
        ("", (3, 2)),
        ("replication: 1", (1, 1)),
        ("replication: 2", (2, 2)),
        ("replication: 4\nin_sync: 3", (4, 3)),
    ],
)
def test_a_site_without_the_keys_keeps_each_record_three_times(
    tmp_path: Path, lines: str, durability: tuple[int, int]
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"pipeline: p\nhosts: []\n{lines}\n")
    assert load(path).durability == durability


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("in_sync: 1", "with in_sync: 1, Kafka acknowledges a record that only one broker has"),
        ("in_sync: 4", "in_sync is 4, but replication keeps each record on 3 brokers only"),
    ],
)
def test_a_site_that_contradicts_itself_is_refused(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"pipeline: p\nhosts: []\n{lines}\n")
    with pytest.raises(SiteError, match=message):
        load(path)
