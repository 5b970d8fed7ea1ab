"""The example pipeline: hits on advertisements are checked, enriched, counted and delivered.

Start here to see how a pipeline is declared. Each tier's transform has its own module. The site
file names this pipeline as `hits`.
"""

from hits.counts import CAMPAIGN_COUNTS, per_window
from hits.enrich import with_campaign
from hits.entry import checked
from hits.outbound import DELIVERED, deliverable
from sluice import Delivery, Fields, JobTable, Kind, Mode, Pipeline, Quantum, Stream, Tier

HIT = "id string, user string, ad string, kind string, at bigint"

RAW = Stream("raw")
HITS = Stream("hits", HIT)
ENRICHED = Stream("enriched", f"{HIT}, campaign string", Fields("campaign"))

CAMPAIGN_DAILY = JobTable(
    "campaign_daily",
    {
        "day": "date",
        "campaign": "text",
        "views": "bigint NOT NULL",
        "clicks": "bigint NOT NULL",
        "buys": "bigint NOT NULL",
    },
    key=("day", "campaign"),
)
"""The result of the nightly report."""

SLOT = Quantum(cpu=1, memory=750, threads=4, disk=2048)
OUTSIDE_SLOT = SLOT.model_copy(update={"io": 300, "network": 300})
"""A slot of a tier that talks to systems outside.

Its larger weights for disk and network keep it from waiting behind tiers that only process.
"""
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
            quantum=OUTSIDE_SLOT,
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
            max_offsets=50_000,  # its records are small, and a batch costs 0.2 s by itself
            quantum=OUTSIDE_SLOT,
            driver=DRIVER,
        ),
    ),
    tables=(CAMPAIGN_DAILY,),
)
