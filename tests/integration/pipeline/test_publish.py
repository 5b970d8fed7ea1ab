"""What publishing does to tiers that are not declared any more."""

from ops import runbook
from ops.channel import Channel
from ops.model import paths
from ops.model.incarnation import TierWanted
from pipeline import declare, publish
from tests.integration.pipeline.conftest import Lab


def wanted(channel: Channel, tier: str) -> bool | None:
    found = channel.read(paths.wanted(tier), TierWanted)
    return None if found is None else found.value.running


def test_a_tier_that_is_not_declared_any_more_is_stopped_until_it_is_declared_again(lab: Lab) -> None:
    specs = {spec.name: spec for spec in declare.load("pipeline.hits").specs()}
    names = {str(name) for name in specs}
    with Channel(lab.where.zookeeper) as channel:
        channel.put(paths.tier("gone"), specs[min(specs)])
        runbook.want(channel, "gone", by="anna", running=True)
        runbook.want(channel, min(names), by="anna", running=False)
        assert publish.retire(channel, names) == ["gone"]
        assert wanted(channel, "gone") is False
        assert publish.retire(channel, names) == [], "it is said once"
        assert publish.retire(channel, {*names, "gone"}) == []
        assert wanted(channel, "gone") is True
        assert wanted(channel, min(names)) is False, "what a person stopped stays stopped"
        channel.delete(paths.tier("gone"))
        channel.delete(paths.wanted(min(names)))
