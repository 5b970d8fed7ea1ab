"""Which replays are refused, and what to do instead. Pure."""

from sluice.api.declarations import Pipeline, Tier
from sluice.replay.book import ReplayError
from sluice.sinks.table import Once
from sluice_ops.model.tier import Delivery


def refuse(pipeline: Pipeline, tier: Tier, *, quarantine: bool) -> None:
    """Refuse what could not be done without counting something twice, or would do nothing."""
    name = f'tier "{tier.name}"'
    inputs = {stream.name for stream in tier.inputs}
    before = [
        f"`sluice replay {other.name}`"
        for other in pipeline.tiers
        if inputs & {stream.name for stream in other.outputs}
    ]
    if tier.state is not None:
        way = f"replay what is before it ({', '.join(before)})" if before else "put them into its input again"
        message = f"{name} holds state, which only its own query may change; {way}: it takes what it lacks, unless that is too late by then"
    elif tier.delivery is Delivery.AT_MOST_ONCE:
        message = f"{name} delivers at most once: nothing that may have been sent is sent again; `sluice audit` tells what may be lost"
    elif tier.sink is not None and not isinstance(tier.sink, Once) and not quarantine:
        message = (
            f"{name} tells by marks what it had, and would take none of it again; what {tier.sink.name} lacks is mended by hand "
            f"(`sluice audit` names it); what it has set aside: `sluice replay {tier.name} --quarantine`"
        )
    else:
        return
    raise ReplayError(message)
