"""A pipeline for `test_light_tiers`: the tiers of `hits`, each in one JVM."""

from dataclasses import replace

from hits import PIPELINE as HITS
from sluice import Pipeline, Quantum, Tier

WITH_WORKERS: tuple[str, ...] = ()
DRIVER = Quantum(cpu=0.5, memory=900, threads=4)


def light(tier: Tier) -> Tier:
    """Return a tier whose driver does the work."""
    return replace(tier, light=True, quantum=Quantum(), driver=DRIVER)


PIPELINE = Pipeline(
    tuple(tier if tier.name in WITH_WORKERS else light(tier) for tier in HITS.tiers), HITS.tables
)
