"""Spread a state over another number of partitions: in a folder of its own, from a copy of a checkpoint, and counted before and after.

Spark's own `streamingCheckpointManager` does it (experimental in 4.2.0): it adds a batch to the checkpoint, which reads nothing and writes
every store anew. What was there stays, so that whoever is ended in the middle has changed nothing.
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
"""Read what is there as bytes, whatever it is: as Spark does itself when it repartitions."""


class RepartitionError(Exception):
    """The state that was made is not the one that it was made of."""


class Held(NamedTuple):
    """What one part of a store holds."""

    keys: int
    digest: int
    """A sum over all keys and values, which their order does not change."""


NONE = Held(0, 0)


def repartition(  # noqa: PLR0913, PLR0917 — what is to be made of what
    session: "SparkSession",
    checkpoints: "Checkpoints",
    incarnation: int,
    run: str,
    begun: "Committed",
    partitions: int,
) -> tuple[str, Repartitioned]:
    """Return the folder of a run with the state of the one that has `begun`, in so many partitions."""
    at, depot = time.monotonic(), checkpoints.depot
    before = held(session, depot.url(run), begun.batch)
    manager = session._jsparkSession.streamingCheckpointManager()  # noqa: SLF001 — not public in Python yet
    manager.repartition(depot.url(run), partitions, True)
    after_run, made = checkpoints.go_on(incarnation, run)
    after = held(session, depot.url(after_run), made.batch)
    refuse_other(before, after)
    keys_before, keys_after = (sum(each.keys for each in there.values()) for there in (before, after))
    done = Repartitioned(
        before=begun.partitions,
        after=made.partitions,
        keys_before=keys_before,
        keys_after=keys_after,
        seconds=round(time.monotonic() - at, 1),
    )
    log.info("the state is spread anew", run=after_run, of=run, **done.model_dump())
    return after_run, done


def held(session: "SparkSession", url: str, batch: int) -> dict[str, Held]:
    """Count what a checkpoint holds as of a batch, by operator, store and kind of key."""
    found: dict[str, Held] = {}
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
            found[f"{store.operatorId}/{store.stateStoreName}/{kind.column_family_name}"] = Held(
                kind["keys"], int(kind.digest)
            )
    return found


def refuse_other(before: dict[str, Held], after: dict[str, Held]) -> None:
    """Refuse a state that is not, key by key and value by value, what it was. Pure."""
    wrong = [
        f"{name}: {before.get(name, NONE).keys} keys before, {after.get(name, NONE).keys} after"
        for name in sorted(before.keys() | after.keys())
        if before.get(name, NONE) != after.get(name, NONE)
    ]
    if wrong:
        message = f"the state was to be spread anew, and is not the same ({'; '.join(wrong)}); nothing was changed, the tier keeps the old one"
        raise RepartitionError(message)
