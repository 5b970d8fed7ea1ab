"""`python -m sluice.commands.publish`: make a pipeline known to the site.

Run this command at every start of the platform and after every change of the pipeline. Publishing
validates the pipeline that the site file names, and runs every transform of new code once. It then
writes the tiers to the channel, the streams to Kafka and the tables to PostgreSQL. New code becomes
a release; a tier runs the release only after `sluice upgrade`. Publishing twice is the same as
publishing once.

Running tiers that the pipeline no longer declares are stopped, and tiers that another pipeline
published are replaced, but only with `--yes`: the site file, or the pipeline in it, may be the
wrong one. `--dry-run` prints the changes and writes nothing.

Exit codes:

- 0: done;
- 1: the pipeline or the site file is invalid, Spark is missing, a stream would lose records with
  one broker's disk, or `--yes` is missing;
- 2: a service does not answer.
"""

import argparse
import getpass
import json
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import psycopg

from sluice import published, releases, schema_registry
from sluice.api import declarations, formats
from sluice.checks.shapes import shapes
from sluice.commands import tables, validation
from sluice.commands.publish_results import BuiltEnvironment, Checked, Preview, Published, published_from
from sluice.dependencies.build import build
from sluice.kafka import grants, topics
from sluice.kafka.durability import WeakStreamError
from sluice_ops.channel import Channel, ChannelAwayError, ConflictError, Write, trail_queue
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.database import OWNER
from sluice_ops.model.exit_codes import AWAY, FAILED, INTERRUPTED, WRONG_USAGE
from sluice_ops.model.incarnation import IncarnationSpec, TierWanted
from sluice_ops.model.kafka_access import User
from sluice_ops.model.release import Release
from sluice_ops.model.tier import Mode, TierSpec
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.model.unknown_names import unknown
from sluice_ops.model.unusable_spares import unusable_spares
from sluice_ops.site import endpoints, project, site_file

BY = "publish"
"""The author of a stop of an undeclared tier."""


class WouldStopError(Exception):
    """Publishing would stop running tiers, and `--yes` is missing."""


class OtherPipelineError(Exception):
    """Published tiers are another pipeline's, and `--yes` is missing."""


FAILURES = (
    declarations.DeclarationError,
    releases.ChangedError,
    validation.UncheckedError,
    WouldStopError,
    OtherPipelineError,
    WeakStreamError,
    schema_registry.IncompatibleError,
)
WRONG_FILES = (site_file.SiteError, endpoints.EndpointsError)
SERVICES_AWAY = (
    FileNotFoundError,
    topics.TopicError,
    ChannelAwayError,
    ConflictError,
    schema_registry.RegistryAwayError,
)
"""FileNotFoundError: no endpoints file names the services."""


def main(arguments: list[str] | None = None) -> int:
    """Validate and publish; return the exit code, as every command of `sluice` does."""
    parser = argparse.ArgumentParser(
        prog="sluice publish",
        description="Make the site's pipeline known: tiers, streams, tables.",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="only validate each tier; publish nothing",
    )
    parser.add_argument(
        "--declared",
        action="store_true",
        help="with --check: validate only the declarations of tiers, which needs no Spark",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what publishing would change; write nothing"
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help="stop running tiers that the pipeline no longer declares; "
        "replace tiers that another pipeline published",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    chosen = parser.parse_args(arguments)
    if chosen.declared and not chosen.check:
        parser.error("--declared needs --check")
    try:
        return _run(chosen)
    except psycopg.Error as error:
        tried, option = ("listing", " --dry-run") if chosen.dry_run else ("creating", "")
        sys.stderr.write(
            f"{tried} the tables in PostgreSQL failed: {error}\n"
            f"correct the cause, then run `sluice publish{option}` again\n"
        )
        return AWAY
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: run `sluice publish` again; it repeats only what is missing\n")
        return INTERRUPTED
    except (*FAILURES, *WRONG_FILES, *SERVICES_AWAY) as error:
        sys.stderr.write(f"{error}\n")
        return (
            FAILED if isinstance(error, FAILURES) else WRONG_USAGE if isinstance(error, WRONG_FILES) else AWAY
        )


def _run(chosen: argparse.Namespace) -> int:
    settings = site_file.load(project.site_path())
    current = releases.load_current(settings.pipeline)
    pipeline = current.pipeline
    _check_names(settings, pipeline)
    schema_registry.check_address(pipeline, settings.schema_registry)
    if chosen.check:
        return _check(settings, current, declared=chosen.declared, as_json=chosen.json)
    _print(
        _preview(endpoints.load(), settings, current)
        if chosen.dry_run
        else _publish(endpoints.load(), settings, current, may_stop=chosen.yes),
        as_json=chosen.json,
    )
    return 0


def _print(result: Checked | Preview | Published, *, as_json: bool) -> None:
    lines = [json.dumps(asdict(result), indent=2)] if as_json else result.lines()
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def _check(settings: site_file.Site, current: releases.Loaded, *, declared: bool, as_json: bool) -> int:
    """Print for each tier whether it is valid; return the exit code."""
    pipeline = current.pipeline
    found = (
        validation.Validation({}, {})
        if declared
        else validation.validate(current, validation.home(), settings.pipeline)
    )
    valid = [tier.name for tier in pipeline.tiers if tier.name not in found.errors]
    notes = [*site_file.unmatched_places(settings)]
    environment = _environment(settings.pipeline)
    _print(
        Checked(settings.pipeline, valid, dict(found.errors), declared, notes, environment), as_json=as_json
    )
    sys.stderr.writelines(f"{sentence}\n" for sentence in found.sentences())
    return FAILED if found.errors else 0


def _validated(home: Path, module: str, current: releases.Loaded) -> dict[str, tuple[str, ...]]:
    """Validate new code, and return the stateful operators by tier; {} if the code is a release.

    Raise DeclarationError if a tier is invalid.
    """
    if releases.of_current_code(home, module) is not None:
        return {}
    result = validation.cached(home, module) or validation.validate(current, home, module)
    if result.errors:
        sentences = "\n".join(result.sentences())
        message = f"{sentences}\nnothing was published; correct these tiers, then run `sluice publish` again"
        raise declarations.DeclarationError(message)
    return dict(result.state_operators)


def _preview(where: endpoints.Endpoints, settings: site_file.Site, current: releases.Loaded) -> Preview:
    """Return the changes that publishing would make; write nothing."""
    pipeline = current.pipeline
    _validated(where.home, settings.pipeline, current)
    schema_registry.refuse_incompatible(*_schemas(settings, pipeline))
    new_streams = topics.missing(where.kafka_as(User.PUBLISHER), pipeline, settings.durability)
    new_tables = tables.missing(where.postgres_as(OWNER), pipeline)
    with Channel(where.zookeeper, where.required_credential(Role.PUBLISHER)) as channel:
        before = channel.children("/tiers")
        stopping = running_undeclared(channel, {tier.name for tier in pipeline.tiers})
        others = _of_other_pipelines(channel, settings.pipeline, {tier.name for tier in pipeline.tiers})
    release = releases.of_current_code(where.home, settings.pipeline)
    return Preview(
        pipeline=settings.pipeline,
        new_tiers=[tier.name for tier in pipeline.tiers if tier.name not in before],
        published_before=[tier.name for tier in pipeline.tiers if tier.name in before],
        new_streams=[*new_streams],
        new_tables=[*new_tables],
        release=release.name if release else None,
        would_stop=stopping,
        would_replace=others,
        environment=_environment(settings.pipeline),
    )


def _refuse_to_stop(channel: Channel, module: str, declared: Collection[str]) -> None:
    """Raise WouldStopError if running tiers are not declared in this pipeline."""
    stopping = running_undeclared(channel, declared)
    if stopping:
        message = (
            f"publishing {module} would stop {', '.join(stopping)}: published before, "
            f"and not declared in {module}. Nothing was published, and the tiers continue. "
            "If the site file (SLUICE_SITE) or its `pipeline` is the wrong one, correct it. "
            "To stop these tiers: sluice publish --yes "
            "(--dry-run shows all changes)"
        )
        raise WouldStopError(message)


def _refuse_to_replace(channel: Channel, module: str, declared: Collection[str]) -> None:
    """Raise OtherPipelineError if another pipeline published some of the declared tiers."""
    others = _of_other_pipelines(channel, module, declared)
    if others:
        message = (
            f"publishing {module} would replace {published_from(others)}. "
            "Nothing was published, and the tiers continue. "
            "If the site file (SLUICE_SITE) or its `pipeline` is the wrong one, correct it. "
            "If this home (SLUICE_HOME) or its endpoints file is another pipeline's, use your own. "
            "If the module was renamed: sluice publish --yes (--dry-run shows all changes)"
        )
        raise OtherPipelineError(message)


def _of_other_pipelines(channel: Channel, module: str, declared: Collection[str]) -> dict[str, str]:
    """Return the declared tiers that were published from another module, with this module."""
    modules = {name: _published_from(channel, name) for name in channel.children("/tiers")}
    return {
        name: other
        for name, other in modules.items()
        if name in declared and other is not None and other != module
    }


def _published_from(channel: Channel, tier: str) -> str | None:
    """Return the module of a tier's published release; None if it is unknown."""
    spec = channel.read(paths.tier(tier), TierSpec)
    name = None if spec is None else spec.value.release
    release = None if name is None else channel.read(paths.release(name), Release)
    return None if release is None else release.value.module


def refuse_too_few_threads(light: Iterable[TierSpec], counts: Mapping[str, int], of_new: int) -> None:
    """Raise DeclarationError if the driver of a light realtime tier has fewer threads than the tier
    reads partitions.

    `counts` are the partitions of the streams that exist, `of_new` those of a new stream.
    """
    for spec in light:
        partitions = sum(counts.get(name, of_new) for name in spec.inputs)
        if partitions > spec.driver.threads:
            message = (
                f'tier "{spec.name}": realtime holds a thread for each of the {partitions} partitions that '
                f"it reads, and the driver of this light tier has {spec.driver.threads}; raise driver.threads"
            )
            raise declarations.DeclarationError(message)


def _publish(
    where: endpoints.Endpoints, settings: site_file.Site, current: releases.Loaded, *, may_stop: bool
) -> Published:
    """Write everything, and return what was done."""
    pipeline, digest = current.pipeline, releases.current_digest(settings.pipeline)
    operators = _validated(where.home, settings.pipeline, current)
    if not may_stop:
        with Channel(where.zookeeper, where.required_credential(Role.PUBLISHER)) as channel:
            declared = {tier.name for tier in pipeline.tiers}
            _refuse_to_replace(channel, settings.pipeline, declared)
            _refuse_to_stop(channel, settings.pipeline, declared)
    kafka = where.kafka_as(User.PUBLISHER)
    if pinned := [spec for spec in pipeline.specs() if spec.light and spec.mode is Mode.REALTIME]:
        refuse_too_few_threads(pinned, topics.partitions(kafka), settings.partitions)
    written_schemas = _schemas(settings, pipeline)
    schema_registry.refuse_incompatible(*written_schemas)
    schemas = schema_registry.register(*written_schemas)
    new = topics.create(kafka, pipeline, settings.partitions, settings.durability)
    notes = (topics.stamp(kafka, pipeline), grants.grant(kafka, pipeline))
    shapes_before = (shape for release in releases.all_stored(where.home) for shape in release.tiers.values())
    earlier = {sink.name: sink.kind for shape in shapes_before for sink in shape.sinks}
    made = tables.create(where.postgres_as(OWNER), pipeline, earlier)
    release, is_new = releases.store(
        where.home,
        settings.pipeline,
        time.time(),
        lambda: shapes(pipeline, operators),
        digest,
        schemas=schemas,
    )
    counts = topics.partitions(kafka)
    specs = [
        spec.model_copy(
            update={"release": release.name, "partitions": sum(counts[name] for name in spec.inputs)}
        )
        for spec in pipeline.specs()
    ]
    with Channel(where.zookeeper, where.required_credential(Role.PUBLISHER)) as channel:
        _declare(channel, release)
        for spec in specs:
            channel.put(paths.tier(spec.name), spec)
        stopped = stop_undeclared(channel, {spec.name for spec in specs})
        outdated = _outdated(channel, specs)
        for name in releases.prune(where.home, _used_releases(channel)):
            channel.delete(paths.release(name))
    published.write(specs, pipeline)
    return Published(
        pipeline=settings.pipeline,
        tiers=[spec.name for spec in specs],
        tables=[*made],
        new_streams=[*new],
        release=release.name,
        is_new=is_new,
        other_releases_run_in=outdated,
        stopped=stopped,
        notes=[note for note in notes if note is not None],
        unmatched_places=[*site_file.unmatched_places(settings)],
        environment=_environment(settings.pipeline),
    )


def _environment(module: str) -> BuiltEnvironment | None:
    built = build(releases.source(module))
    if built is None:
        return None
    contents = built.contents
    return BuiltEnvironment({**contents.packages}, [*contents.jars], contents.bytes, built.seconds)


def _schemas(
    settings: site_file.Site, pipeline: declarations.Pipeline
) -> tuple[str, dict[str, formats.SchemaFormat]]:
    """Return the registry's address, and the schemas that it has to know."""
    return settings.schema_registry or "", schema_registry.written_schemas(pipeline)


def running_undeclared(channel: Channel, declared: Collection[str]) -> list[str]:
    """Return the published tiers that shall run and that the pipeline does not declare."""
    undeclared = [name for name in channel.children("/tiers") if name not in declared]
    wanted = {name: channel.read(paths.wanted(name), TierWanted) for name in undeclared}
    return [name for name, node in wanted.items() if node is None or node.value.running]


def _declare(channel: Channel, release: Release) -> None:
    """Write a release with its digest to the channel; drivers trust this digest, not a file."""
    known = channel.read(paths.release(release.name), Release)
    if known is None:
        trail = _trail_entry(f"publish {release.name}")
        channel.multi([Write(paths.release(release.name), release, None), trail])
    elif known.value.digest != release.digest:
        message = (
            f"the channel has other code under the name of release {release.name}, so nothing was "
            "declared; change the pipeline (a comment is enough), then run "
            "`sluice publish` again"
        )
        raise releases.ChangedError(message)


def stop_undeclared(channel: Channel, declared: Collection[str]) -> list[str]:
    """Request a stop of tiers that are no longer declared, and return their names.

    A tier that this function stopped, and that is declared again, is started.
    """
    stopped = []
    for name in channel.children("/tiers"):
        node = channel.read(paths.wanted(name), TierWanted)
        before = TierWanted(running=True) if node is None else node.value
        if before.running and name not in declared:
            stopped.append(name)
        elif before.running or before.by != BY or name not in declared:
            continue
        after = before.model_copy(update={"running": name in declared, "by": BY, "at": time.time()})
        trail = _trail_entry(f"{'start' if after.running else 'stop'} {name}")
        channel.multi([Write(paths.wanted(name), after, None if node is None else node.version), trail])
    return stopped


def _trail_entry(what: str) -> Write:
    return trail_queue.write(
        Role.PUBLISHER, Entry(at=time.time(), by=f"{BY}:{getpass.getuser()}", what=what, outcome=Outcome.DONE)
    )


def _outdated(channel: Channel, specs: Iterable[TierSpec]) -> list[str]:
    """Return the tiers that start from another release than the published one."""
    wanted = ((spec, channel.read(paths.wanted(spec.name), TierWanted)) for spec in specs)
    return [
        spec.name
        for spec, node in wanted
        if node is not None and node.value.release not in {None, spec.release}
    ]


def _used_releases(channel: Channel) -> set[str]:
    """Return the releases that incarnations run, or that tiers start from."""
    used: set[str | None] = set()
    for name in channel.children("/tiers"):
        wanted, spec = channel.read(paths.wanted(name), TierWanted), channel.read(paths.tier(name), TierSpec)
        used |= {node.value.release for node in (wanted, spec) if node is not None}
        for number in channel.children(paths.incarnations(name)):
            incarnation = channel.read(paths.incarnation(name, int(number)), IncarnationSpec)
            if incarnation is not None and not incarnation.value.retired:
                used.add(incarnation.value.release)
    return {name for name in used if name is not None}


def _check_names(settings: site_file.Site, pipeline: declarations.Pipeline) -> None:
    """Refuse a site file that names unknown tiers, or gives spares to tiers that have none: both
    would have no effect.
    """
    known = [tier.name for tier in pipeline.tiers]
    shifts = {name: shift.shares for name, shift in settings.shifts.items()}
    if spares := unusable_spares(settings.shares, shifts, pipeline.specs()):
        raise declarations.DeclarationError("\n".join(spares))
    unknown_names = unknown(settings, shifts, known)
    if unknown_names:
        message = (
            f"{'; '.join(unknown_names)}: the pipeline {settings.pipeline} has {', '.join(known)}; "
            "correct the name, or declare the tier"
        )
        raise declarations.DeclarationError(message)


if __name__ == "__main__":
    sys.exit(main())
