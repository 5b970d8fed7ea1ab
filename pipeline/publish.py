"""`python -m pipeline.publish [--check]`: make a pipeline known. Run at every start of the platform and after every change of the pipeline.

Validates the pipeline that the site file names; then writes its tiers to the channel, its streams to Kafka, its tables to PostgreSQL.
Tiers that are not declared any more are stopped.
All of it is idempotent. Exit codes: 0 done, 1 the pipeline or the site file is wrong, 2 a service does not answer.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Collection
from pathlib import Path

import psycopg

from ops import endpoints, site
from ops.channel.client import Channel, ChannelAwayError, ConflictError
from ops.model import paths
from ops.model.incarnation import TierWanted
from pipeline import declare, tables, topics

WRONG = 1
AWAY = 2
BY = "publish"
"""Who wants a tier stopped that is not declared any more."""


def main(arguments: list[str] | None = None) -> int:
    """Check, and publish."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.publish", description="Make the site's pipeline known: tiers, streams, tables."
    )
    parser.add_argument("--check", action="store_true", help="validate only; nothing is written")
    only_check = parser.parse_args(arguments).check
    try:
        settings = site.load(Path(os.environ.get("SLUICE_SITE", "site.yaml")))
        pipeline = declare.load(settings.pipeline)
        _shares(settings, pipeline)
    except (site.SiteError, declare.DeclarationError) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG
    names = ", ".join(tier.name for tier in pipeline.tiers)
    if only_check:
        sys.stdout.write(f"{settings.pipeline}: {names}: valid\n")
        return 0
    try:
        where = endpoints.load()
        new = topics.create(where.kafka, pipeline, settings.partitions)
        filled = tables.create(where.postgres, pipeline)
        with Channel(where.zookeeper) as channel:
            for spec in pipeline.specs():
                channel.put(paths.tier(spec.name), spec)
            stopped = retire(channel, {tier.name for tier in pipeline.tiers})
        _leave_for_airflow(pipeline)
    except (FileNotFoundError, endpoints.EndpointsError) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG
    except (topics.TopicError, ChannelAwayError, ConflictError) as error:
        sys.stderr.write(f"{error}\n")
        return AWAY
    except psycopg.Error as error:
        sys.stderr.write(f"tables cannot be made in PostgreSQL: {error}\n")
        return AWAY
    sys.stdout.write(f"{settings.pipeline}: tiers {names}; tables {', '.join(filled)}; new streams: {', '.join(new) or 'none'}\n")
    if stopped:
        sys.stdout.write(f"not declared any more, and stopped: {', '.join(stopped)}; their streams, tables and checkpoints stay\n")
    return 0


def retire(channel: Channel, declared: Collection[str]) -> list[str]:
    """Have tiers stopped that are not declared any more, and return them; one that is declared again goes on."""
    stopped = []
    for name in channel.children("/tiers"):
        found = channel.read(paths.wanted(name), TierWanted)
        before = TierWanted(running=True) if found is None else found.value
        if before.running and name not in declared:
            stopped.append(name)
        elif before.running or before.by != BY or name not in declared:
            continue
        after = before.model_copy(update={"running": name in declared, "by": BY, "at": time.time()})
        channel.put(paths.wanted(name), after, version=None if found is None else found.version)
    return stopped


def _leave_for_airflow(pipeline: declare.Pipeline) -> None:
    """Write the tiers to a file too: Airflow makes its DAGs of them, which must not depend on ZooKeeper."""
    path = endpoints.home() / "tiers.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps([spec.model_dump(mode="json") for spec in pipeline.specs()], indent=1))
    partial.replace(path)


def _shares(settings: site.Site, pipeline: declare.Pipeline) -> None:
    """Refuse shares of tiers that are not there: a typing error would go unnoticed."""
    known = {tier.name for tier in pipeline.tiers} | {"batch"}
    for key, named in (("shares", settings.shares), ("locality", settings.locality)):
        for name in named:
            if name not in known:
                message = f"{key}.{name}: the pipeline {settings.pipeline} has no such tier; it has {', '.join(sorted(known))}"
                raise declare.DeclarationError(message)


if __name__ == "__main__":
    sys.exit(main())
