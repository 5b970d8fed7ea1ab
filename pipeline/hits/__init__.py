"""The shipped pipeline: hits on advertisements, checked, enriched with their campaign, counted and delivered.

Read this first to see how a pipeline is declared; each tier's transform is a module of its own. Named in site.yaml as `hits`.
"""

from hits.counts import CAMPAIGN_COUNTS, per_window
from hits.enrich import with_campaign
from hits.entry import checked
from hits.outbound import DELIVERED, deliverable
from sluice import Delivery, Fields, Kind, Mode, Pipeline, Quantum, Stream, Tier

HIT = "id string, user string, ad string, kind string, at bigint"

RAW = Stream("raw")
HITS = Stream("hits", HIT)
ENRICHED = Stream("enriched", f"{HIT}, campaign string", Fields("campaign"))

SLOT = Quantum(cpu=1, memory=750, threads=4, disk=2048)
TO_THE_WORLD = SLOT.model_copy(update={"io": 300, "network": 300})
"""A slot of a tier that talks to others: who waits for it is not to wait behind what only processes."""
DRIVER = Quantum(cpu=0.5, memory=800, threads=1, disk=2048)

PIPELINE = Pipeline(
    tiers=(
        Tier(
            "entry",
            Kind.ENTRY,
            (RAW,),
            checked,
            outputs=(HITS,),
            mode=Mode.REALTIME,
            quantum=TO_THE_WORLD,
            driver=DRIVER,
        ),
        Tier(
            "enrich",
            Kind.PROCESSING,
            (HITS,),
            with_campaign,
            outputs=(ENRICHED,),
            mode=Mode.REALTIME,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "counts",
            Kind.PROCESSING,
            (ENRICHED,),
            per_window,
            sink=CAMPAIGN_COUNTS,
            delivery=Delivery.EXACTLY_ONCE,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "outbound",
            Kind.OUTBOUND,
            (ENRICHED,),
            deliverable,
            sink=DELIVERED,
            delivery=Delivery.EXACTLY_ONCE,
            quantum=TO_THE_WORLD,
            driver=DRIVER,
        ),
    )
)
