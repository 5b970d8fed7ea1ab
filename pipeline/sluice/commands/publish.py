"""`python -m sluice.commands.publish`: make a pipeline known. Run at every start of the platform and after every change of the pipeline.

Publishing validates the pipeline that the site file names, and runs every transform of new code once. It then writes the
tiers to the channel, the streams to Kafka and the tables to PostgreSQL. New code becomes a release; a tier runs it only after
`sluice upgrade`. Publishing twice is the same as once.

Tiers that run and are not declared any more are stopped, but only with `--yes`: another site file, or another pipeline in
it, would otherwise stop everything that runs. `--dry-run` prints what would change and writes nothing.

Exit codes: 0 done; 1 the pipeline or the site file is wrong, Spark is missing, a stream would
lose records with one broker's disk, or tiers would be stopped and `--yes` was not
given; 2 a service does not answer.
"""

import argparse
import getpass
import os
import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path

import psycopg

from sluice import published, releases
from sluice.api import declarations
from sluice.checks.shapes import shapes
from sluice.commands import tables, validation
from sluice.kafka import grants, topics
from sluice.kafka.durability import WeakStreamError
from sluice_ops.channel import Channel, ChannelAwayError, ConflictError, Write, trail_queue
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.database import OWNER
from sluice_ops.model.incarnation import IncarnationSpec, TierWanted
from sluice_ops.model.kafka_access import User
from sluice_ops.model.release import Release
from sluice_ops.model.tier import TierSpec
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.model.unknown_names import unknown
from sluice_ops.site import endpoints, site_file

WRONG = 1
AWAY = 2
BY = "publish"
"""The author that a stop of an undeclared tier names."""


class WouldStopError(Exception):
    """Publishing would stop tiers that run, and `--yes` was not given."""


def main(arguments: list[str] | None = None) -> int:
    """Check, and publish."""
    parser = argparse.ArgumentParser(
        prog="python -m sluice.commands.publish",
        description="Make the site's pipeline known: tiers, streams, tables.",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="validate only: say of each tier whether it is valid; nothing is published",
    )
    parser.add_argument(
        "--declared",
        action="store_true",
        help="with --check: how tiers are declared alone, which needs no Spark",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what publishing would change; write nothing"
    )
    parser.add_argument(
        "--yes", action="store_true", help="stop the tiers that run and are not declared any more"
    )
    chosen = parser.parse_args(arguments)
    if chosen.declared and not chosen.check:
        parser.error("--declared goes with --check")
    try:
        settings = site_file.load(Path(os.environ.get("SLUICE_SITE", "site.yaml")))
        pipeline = declarations.load(settings.pipeline)
        _check_names(settings, pipeline)
    except (site_file.SiteError, declarations.DeclarationError) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG
    try:
        if chosen.check:
            return _check(settings, pipeline, declared=chosen.declared)
        if chosen.dry_run:
            lines = list(_preview(endpoints.load(), settings, pipeline))
        else:
            lines = list(_publish(endpoints.load(), settings, pipeline, may_stop=chosen.yes))
    except (
        FileNotFoundError, endpoints.EndpointsError, declarations.DeclarationError, releases.ChangedError, validation.UncheckedError,
        WouldStopError, WeakStreamError,
    ) as error:  # fmt: skip
        sys.stderr.write(f"{error}\n")
        return WRONG
    except (topics.TopicError, ChannelAwayError, ConflictError) as error:
        sys.stderr.write(f"{error}\n")
        return AWAY
    except psycopg.Error as error:
        sys.stderr.write(f"tables cannot be made in PostgreSQL: {error}\n")
        return AWAY
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def _check(settings: site_file.Site, pipeline: declarations.Pipeline, *, declared: bool) -> int:
    """Say of every tier whether it is valid."""
    if declared:
        sys.stdout.write(
            f"{settings.pipeline}: {', '.join(tier.name for tier in pipeline.tiers)}: declared soundly\n"
        )
        wrong = []
    else:
        found = validation.validate(pipeline, validation.home(), settings.pipeline)
        sys.stdout.writelines(
            f'tier "{tier.name}": valid\n' for tier in pipeline.tiers if tier.name not in found.wrong
        )
        wrong = found.sentences()
    sys.stdout.writelines(f"{line}\n" for line in site_file.unmatched_places(settings))
    sys.stdout.flush()
    sys.stderr.writelines(f"{sentence}\n" for sentence in wrong)
    return WRONG if wrong else 0


def _sound(home: Path, module: str, pipeline: declarations.Pipeline) -> dict[str, tuple[str, ...]]:
    """Return what tiers of new code hold in Spark, and nothing of code that is a release; refuse it where a tier is wrong."""
    if releases.same(home, module) is not None:
        return {}
    found = validation.noted(home, module) or validation.validate(pipeline, home, module)
    if found.wrong:
        sentences = "\n".join(found.sentences())
        message = f"{sentences}\nnothing is published: mend what is named, and publish again"
        raise declarations.DeclarationError(message)
    return dict(found.holds)


def _preview(
    where: endpoints.Endpoints, settings: site_file.Site, pipeline: declarations.Pipeline
) -> Iterable[str]:
    """Yield what publishing would change, one line each; write nothing."""
    _sound(where.home, settings.pipeline, pipeline)
    new_streams = topics.missing(where.kafka_as(User.PUBLISHER), pipeline, settings.durability)
    with Channel(where.zookeeper, where.needed(Role.PUBLISHER)) as channel:
        before = channel.children("/tiers")
        stopping = running_undeclared(channel, {tier.name for tier in pipeline.tiers})
    new_tiers = [tier.name for tier in pipeline.tiers if tier.name not in before]
    kept = [tier.name for tier in pipeline.tiers if tier.name in before]
    release = releases.same(where.home, settings.pipeline)
    yield f"dry run, nothing was written: {settings.pipeline}"
    yield f"new tiers: {', '.join(new_tiers) or 'none'}; published before: {', '.join(kept) or 'none'}"
    yield f"new streams: {', '.join(new_streams) or 'none'}"
    yield f"release: {f'{release.name}, the code is unchanged' if release else 'a new one, the code has changed'}"
    yield f"tiers that would stop: {', '.join(stopping) or 'none'}{'; publishing needs --yes' if stopping else ''}"


def _refuse_to_stop(channel: Channel, module: str, declared: Collection[str]) -> None:
    """Raise WouldStopError when tiers run that this pipeline does not declare."""
    stopping = running_undeclared(channel, declared)
    if stopping:
        message = (
            f"publishing {module} would stop {', '.join(stopping)}: published before, and not declared in {module}. "
            f"Nothing was published, and the tiers run on. If the site file (SLUICE_SITE) or its `pipeline` is the wrong one, "
            f"correct it; to stop these tiers: python -m sluice.commands.publish --yes (--dry-run shows all changes)"
        )
        raise WouldStopError(message)


def _publish(
    where: endpoints.Endpoints, settings: site_file.Site, pipeline: declarations.Pipeline, *, may_stop: bool
) -> Iterable[str]:
    """Write everything, and yield what was written, one line each."""
    hashed = releases.digest(releases.source(settings.pipeline))
    holds = _sound(where.home, settings.pipeline, pipeline)
    if not may_stop:
        with Channel(where.zookeeper, where.needed(Role.PUBLISHER)) as channel:
            _refuse_to_stop(channel, settings.pipeline, {tier.name for tier in pipeline.tiers})
    kafka = where.kafka_as(User.PUBLISHER)
    new = topics.create(kafka, pipeline, settings.partitions, settings.durability)
    stamped = topics.stamp(kafka, pipeline)
    granted = grants.grant(kafka, pipeline)
    shapes_before = (shape for each in releases.known(where.home) for shape in each.tiers.values())
    earlier = {shape.sink.name for shape in shapes_before if shape.sink is not None}
    filled = tables.create(where.postgres_as(OWNER), pipeline, earlier)
    release, is_new = releases.keep(
        where.home, settings.pipeline, time.time(), lambda: shapes(pipeline, holds), hashed
    )
    counts = topics.partitions(kafka)
    specs = [
        spec.model_copy(
            update={"release": release.name, "partitions": sum(counts[name] for name in spec.inputs)}
        )
        for spec in pipeline.specs()
    ]
    with Channel(where.zookeeper, where.needed(Role.PUBLISHER)) as channel:
        _declare(channel, release)
        for spec in specs:
            channel.put(paths.tier(spec.name), spec)
        stopped = retire(channel, {spec.name for spec in specs})
        behind = _behind(channel, specs)
        for name in releases.prune(where.home, _used(channel)):
            channel.delete(paths.release(name))
    published.write(specs)
    names = ", ".join(spec.name for spec in specs)
    yield f"{settings.pipeline}: tiers {names}; tables {', '.join(filled)}; new streams: {', '.join(new) or 'none'}"
    yield f"release {release.name}{', which is new' if is_new else ': the code is as it was'}"
    yield from (sentence for sentence in (stamped, granted) if sentence is not None)
    if behind:
        yield f"other releases run in {', '.join(behind)}: `sluice upgrade TIER` hands a tier over to this one"
    if stopped:
        yield f"not declared any more, and stopped: {', '.join(stopped)}; their streams, tables and checkpoints stay"
    yield from site_file.unmatched_places(settings)


def running_undeclared(channel: Channel, declared: Collection[str]) -> list[str]:
    """Return the published tiers that are to run and that the pipeline does not declare."""
    undeclared = [name for name in channel.children("/tiers") if name not in declared]
    wanted = {name: channel.read(paths.wanted(name), TierWanted) for name in undeclared}
    return [name for name, node in wanted.items() if node is None or node.value.running]


def _declare(channel: Channel, release: Release) -> None:
    """Keep the digest of a release in the channel: drivers go by that, and by no file beside the code."""
    known = channel.read(paths.release(release.name), Release)
    if known is None:
        channel.multi([Write(paths.release(release.name), release, None), _told(f"publish {release.name}")])
    elif known.value.digest != release.digest:
        message = f"release {release.name} has other code in the channel: change the pipeline, be it a comment, and publish again"
        raise releases.ChangedError(message)


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
    return trail_queue.write(
        Role.PUBLISHER, Entry(at=time.time(), by=f"{BY}:{getpass.getuser()}", what=what, outcome=Outcome.DONE)
    )


def _behind(channel: Channel, specs: Iterable[TierSpec]) -> list[str]:
    """Name the tiers that are begun from another release than the one that is published now."""
    wanted = ((spec, channel.read(paths.wanted(spec.name), TierWanted)) for spec in specs)
    return [
        spec.name
        for spec, found in wanted
        if found is not None and found.value.release not in {None, spec.release}
    ]


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


def _check_names(settings: site_file.Site, pipeline: declarations.Pipeline) -> None:
    """Refuse a site file that speaks of tiers that are not there: a slip of the keyboard would go unnoticed."""
    known = [tier.name for tier in pipeline.tiers]
    wrong = unknown(settings, {name: shift.shares for name, shift in settings.shifts.items()}, known)
    if wrong:
        message = f"{'; '.join(wrong)}: the pipeline {settings.pipeline} has {', '.join(known)}; correct the name, or declare the tier"
        raise declarations.DeclarationError(message)


if __name__ == "__main__":
    sys.exit(main())
