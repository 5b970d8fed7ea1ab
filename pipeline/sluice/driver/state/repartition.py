"""Repartitions the state of a tier in a copy of a checkpoint.

Spark's `streamingCheckpointManager` (experimental in 4.2.0) adds a batch to the copy. The batch
reads nothing and writes every store anew. All keys and values are counted before and after. The
original checkpoint stays, so a crash in the middle changes nothing.
"""

import time
from typing import TYPE_CHECKING, NamedTuple

import structlog
from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

from sluice_ops.model.incarnation import Repartitioned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.driver.state.checkpoint_selection import Committed
    from sluice.driver.state.checkpoints import Checkpoints

log = structlog.get_logger()
ALL_KINDS = "_readAllColumnFamilies"
"""Read all kinds of keys and values as bytes, as Spark does itself when it repartitions."""


class RepartitionError(Exception):
    """The state after the repartitioning differs from the state before."""


class StoreContent(NamedTuple):
    """What one part of a store holds."""

    keys: int
    digest: int
    """A sum over all keys and values, independent of their order."""


NONE = StoreContent(0, 0)


def repartition(  # noqa: PLR0913, PLR0917 — source and target
    session: "SparkSession",
    checkpoints: "Checkpoints",
    incarnation: int,
    run: str,
    begun: "Committed",
    partitions: int,
) -> tuple[str, Repartitioned]:
    """Return the folder of a new run with the state that `run` began with (`begun`), in so many
    partitions.

    RepartitionError if keys or values differ afterwards.
    """
    started, depot = time.monotonic(), checkpoints.depot
    before = store_contents(session, depot.url(run), begun.batch)
    manager = session._jsparkSession.streamingCheckpointManager()  # noqa: SLF001 — not public in Python yet
    manager.repartition(depot.url(run), partitions, True)
    after_run, made = checkpoints.go_on(incarnation, run)
    after = store_contents(session, depot.url(after_run), made.batch)
    refuse_difference(before, after)
    keys_before, keys_after = (
        sum(content.keys for content in contents.values()) for contents in (before, after)
    )
    done = Repartitioned(
        before=begun.partitions,
        after=made.partitions,
        keys_before=keys_before,
        keys_after=keys_after,
        seconds=round(time.monotonic() - started, 1),
    )
    log.info("the state was repartitioned", run=after_run, of=run, **done.model_dump())
    return after_run, done


def store_contents(session: "SparkSession", url: str, batch: int) -> dict[str, StoreContent]:
    """Return the content of a checkpoint as of a batch, by operator, store and kind of key."""
    contents: dict[str, StoreContent] = {}
    for store in (
        session.read.format("state-metadata")
        .load(url)
        .select("operatorId", "stateStoreName")
        .distinct()
        .collect()
    ):
        options = {
            "batchId": str(batch),
            "operatorId": str(store.operatorId),
            "storeName": store.stateStoreName,
            ALL_KINDS: "true",
        }
        rows = session.read.format("statestore").options(**options).load(url)
        digest = F.sum(F.xxhash64("key_bytes", "value_bytes").cast("decimal(38,0)"))
        for kind in (
            rows.groupBy("column_family_name")
            .agg(F.count("*").alias("keys"), digest.alias("digest"))
            .collect()
        ):
            name = f"{store.operatorId}/{store.stateStoreName}/{kind.column_family_name}"
            contents[name] = StoreContent(kind["keys"], int(kind.digest))
    return contents


def refuse_difference(before: dict[str, StoreContent], after: dict[str, StoreContent]) -> None:
    """Raise RepartitionError if any key or value differs. Pure."""
    differences = [
        f"{name}: {before.get(name, NONE).keys} keys before, {after.get(name, NONE).keys} after"
        for name in sorted(before.keys() | after.keys())
        if before.get(name, NONE) != after.get(name, NONE)
    ]
    if differences:
        message = (
            f"the state differs after the repartitioning ({'; '.join(differences)}); "
            "nothing was changed, and the tier keeps the old state"
        )
        raise RepartitionError(message)
