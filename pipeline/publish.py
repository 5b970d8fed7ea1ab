"""`python -m pipeline.publish [--check]`: make a pipeline known. Run at every start of the platform and after every change of the pipeline.

Validates the pipeline that the site file names, new code with every tier's transform; then writes its tiers to the channel, its streams to
Kafka, its tables to PostgreSQL. New code becomes a release, which no tier runs before it is upgraded to it. Tiers that are not declared any
more are stopped. All of it is idempotent. Exit codes: 0 done, 1 the pipeline or the site file is wrong, or there is no Spark to check it
with, 2 a service does not answer.
"""

import argparse
import getpass
import json
import os
import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path

import psycopg

from ops import endpoints, site
from ops.channel import Channel, ChannelAwayError, ConflictError, Write, trail
from ops.model import paths
from ops.model.access import Role
from ops.model.incarnation import IncarnationSpec, TierWanted
from ops.model.named import unknown
from ops.model.streams import User
from ops.model.tier import TierSpec
from ops.model.trail import Entry, Outcome
from pipeline import declare, grants, releases, tables, topics, validation
from pipeline.shapes import shapes

WRONG = 1
AWAY = 2
BY = "publish"
"""Who wants a tier stopped that is not declared any more."""


def main(arguments: list[str] | None = None) -> int:
    """Check, and publish."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.publish", description="Make the site's pipeline known: tiers, streams, tables."
    )
    parser.add_argument("--check", action="store_true", help="validate only: say of each tier whether it is valid; nothing is published")
    parser.add_argument("--declared", action="store_true", help="with --check: how tiers are declared alone, which needs no Spark")
    chosen = parser.parse_args(arguments)
    if chosen.declared and not chosen.check:
        parser.error("--declared goes with --check")
    try:
        settings = site.load(Path(os.environ.get("SLUICE_SITE", "site.yaml")))
        pipeline = declare.load(settings.pipeline)
        _check_names(settings, pipeline)
    except (site.SiteError, declare.DeclarationError) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG
    try:
        if chosen.check:
            return _check(settings, pipeline, declared=chosen.declared)
        said = list(_publish(endpoints.load(), settings, pipeline))
    except (
        FileNotFoundError, endpoints.EndpointsError, declare.DeclarationError, releases.ChangedError, validation.UncheckedError
    ) as error:  # fmt: skip
        sys.stderr.write(f"{error}\n")
        return WRONG
    except (topics.TopicError, ChannelAwayError, ConflictError) as error:
        sys.stderr.write(f"{error}\n")
        return AWAY
    except psycopg.Error as error:
        sys.stderr.write(f"tables cannot be made in PostgreSQL: {error}\n")
        return AWAY
    sys.stdout.writelines(f"{line}\n" for line in said)
    return 0


def _check(settings: site.Site, pipeline: declare.Pipeline, *, declared: bool) -> int:
    """Say of every tier whether it is valid."""
    if declared:
        sys.stdout.write(f"{settings.pipeline}: {', '.join(tier.name for tier in pipeline.tiers)}: declared soundly\n")
        wrong = []
    else:
        found = validation.validate(pipeline, validation.home(), settings.pipeline)
        sys.stdout.writelines(f'tier "{tier.name}": valid\n' for tier in pipeline.tiers if tier.name not in found.wrong)
        wrong = found.sentences()
    sys.stdout.writelines(f"{line}\n" for line in site.nowhere(settings))
    sys.stdout.flush()
    sys.stderr.writelines(f"{sentence}\n" for sentence in wrong)
    return WRONG if wrong else 0


def _sound(home: Path, module: str, pipeline: declare.Pipeline) -> dict[str, tuple[str, ...]]:
    """Return what tiers of new code hold in Spark, and nothing of code that is a release; refuse it where a tier is wrong."""
    if releases.same(home, module) is not None:
        return {}
    found = validation.noted(home, module) or validation.validate(pipeline, home, module)
    if found.wrong:
        sentences = "\n".join(found.sentences())
        message = f"{sentences}\nnothing is published: mend what is named, and publish again"
        raise declare.DeclarationError(message)
    return dict(found.holds)


def _publish(where: endpoints.Endpoints, settings: site.Site, pipeline: declare.Pipeline) -> Iterable[str]:
    """Write everything, and say what."""
    hashed = releases.digest(releases.source(settings.pipeline))
    holds = _sound(where.home, settings.pipeline, pipeline)
    kafka = where.kafka_as(User.PUBLISHER)
    new = topics.create(kafka, pipeline, settings.partitions)
    granted = grants.grant(kafka, pipeline)
    filled = tables.create(where.postgres, pipeline)
    release, is_new = releases.keep(where.home, settings.pipeline, time.time(), lambda: shapes(pipeline, holds), hashed)
    counts = topics.partitions(kafka)
    specs = [
        spec.model_copy(update={"release": release.name, "partitions": sum(counts[name] for name in spec.inputs)})
        for spec in pipeline.specs()
    ]
    with Channel(where.zookeeper, where.needed(Role.PUBLISHER)) as channel:
        for each in releases.known(where.home):
            if not channel.exists(paths.release(each.name)):
                channel.multi([Write(paths.release(each.name), each, None), _told(f"publish {each.name}")])
        for spec in specs:
            channel.put(paths.tier(spec.name), spec)
        stopped = retire(channel, {spec.name for spec in specs})
        behind = _behind(channel, specs)
        for name in releases.prune(where.home, _used(channel)):
            channel.delete(paths.release(name))
    _leave_for_airflow(specs)
    names = ", ".join(spec.name for spec in specs)
    yield f"{settings.pipeline}: tiers {names}; tables {', '.join(filled)}; new streams: {', '.join(new) or 'none'}"
    yield f"release {release.name}{', which is new' if is_new else ': the code is as it was'}"
    if granted is not None:
        yield granted
    if behind:
        yield f"other releases run in {', '.join(behind)}: `sluice upgrade TIER` hands a tier over to this one"
    if stopped:
        yield f"not declared any more, and stopped: {', '.join(stopped)}; their streams, tables and checkpoints stay"
    yield from site.nowhere(settings)


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
        told = _told(f"{'start' if after.running else 'stop'} {name}")
        channel.multi([Write(paths.wanted(name), after, None if found is None else found.version), told])
    return stopped


def _told(what: str) -> Write:
    """Say in the trail what is done."""
    return trail.write(Role.PUBLISHER, Entry(at=time.time(), by=f"{BY}:{getpass.getuser()}", what=what, outcome=Outcome.DONE))


def _behind(channel: Channel, specs: Iterable[TierSpec]) -> list[str]:
    """Name the tiers that are begun from another release than the one that is published now."""
    wanted = ((spec, channel.read(paths.wanted(spec.name), TierWanted)) for spec in specs)
    return [spec.name for spec, found in wanted if found is not None and found.value.release not in {None, spec.release}]


def _used(channel: Channel) -> set[str]:
    """Name the releases that incarnations run, or are to be begun from."""
    used: set[str | None] = set()
    for name in channel.children("/tiers"):
        wanted, spec = channel.read(paths.wanted(name), TierWanted), channel.read(paths.tier(name), TierSpec)
        used |= {found.value.release for found in (wanted, spec) if found is not None}
        for number in channel.children(paths.incarnations(name)):
            incarnation = channel.read(paths.incarnation(name, int(number)), IncarnationSpec)
            if incarnation is not None and not incarnation.value.retired:
                used.add(incarnation.value.release)
    return {name for name in used if name is not None}


def _leave_for_airflow(specs: Iterable[TierSpec]) -> None:
    """Write the tiers to a file too: Airflow makes its DAGs of them, which must not depend on ZooKeeper."""
    path = endpoints.home() / "tiers.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps([spec.model_dump(mode="json") for spec in specs], indent=1))
    partial.replace(path)


def _check_names(settings: site.Site, pipeline: declare.Pipeline) -> None:
    """Refuse a site file that speaks of tiers that are not there: a slip of the keyboard would go unnoticed."""
    known = [tier.name for tier in pipeline.tiers]
    wrong = unknown(settings, {name: shift.shares for name, shift in settings.shifts.items()}, known)
    if wrong:
        message = f"{'; '.join(wrong)}: the pipeline {settings.pipeline} has {', '.join(known)}; correct the name, or declare the tier"
        raise declare.DeclarationError(message)


if __name__ == "__main__":
    sys.exit(main())
