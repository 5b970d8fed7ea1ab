"""One tier of each form: the class data of their queries serve all tiers, and are made faster."""

import nexmark
from sluice.api.declarations import Pipeline

PIPELINE = Pipeline(tuple(nexmark.PIPELINE.tier(name) for name in ("entry", "q0", "q7")))
