"""The pipeline's share in the site file: minimums that contradict it are refused by name."""

from pathlib import Path

import pytest

from sluice_ops.model.share import PipelineShare
from sluice_ops.site.site_file import Site, SiteError, load


def site_of(folder: Path, share: str, shares: str = "{}", shifts: str = "{}") -> Site:
    path = folder / "site.yaml"
    path.write_text(f"pipeline: p\nhosts: []\npipeline_share: {share}\nshares: {shares}\nshifts: {shifts}\n")
    return load(path)


@pytest.mark.parametrize(
    ("written", "share"),
    [
        ("80%", PipelineShare(minimum="80%", maximum="80%")),
        ("12", PipelineShare(minimum=12, maximum=12)),
        ("{minimum: 60%}", PipelineShare(minimum="60%", maximum="100%")),
        ("{minimum: 2, maximum: 80%}", PipelineShare(minimum=2, maximum="80%")),
        ("{maximum: 80%}", PipelineShare(minimum=0, maximum="80%")),
        ("null", None),
    ],
)
def test_one_amount_is_minimum_and_maximum(tmp_path: Path, written: str, share: PipelineShare | None) -> None:
    assert site_of(tmp_path, written).pipeline_share == share


NIGHT = '{night: {schedule: "0 22 * * *", shares: {a: {minimum: 3}}}}'


@pytest.mark.parametrize(
    ("share", "shares", "shifts", "reason"),
    [
        ("{minimum: 80%, maximum: 60%}", "{}", "{}", "its minimum of 80% is above its maximum of 60%"),
        ("3", "{a: {minimum: 2}, b: {minimum: 2}}", "{}", "the minimums of a, b add up to 4, but the tiers"),
        ("50%", "{a: {minimum: 30%}, b: {minimum: 25%}}", "{}", "add up to 55%, but the tiers have at most"),
        ("3", "{a: {minimum: 1}, b: {minimum: 1}}", NIGHT, "of a, b in the shift night add up to 4"),
        ("80%", "{batch: {minimum: 30%}}", "{}", "the minimum of batch of 30% are more than the cluster"),
        ("a lot", "{}", "{}", "'a lot' is neither a number of slots nor a part of the cluster"),
    ],
)
def test_a_share_that_contradicts_minimums_is_refused(
    tmp_path: Path, share: str, shares: str, shifts: str, reason: str
) -> None:
    with pytest.raises(SiteError, match=reason):
        site_of(tmp_path, share, shares, shifts)


def test_slots_and_per_cents_are_not_compared(tmp_path: Path) -> None:
    assert site_of(tmp_path, "50%", "{a: {minimum: 40}, b: {minimum: 50%}, batch: {minimum: 50%}}")
