"""`python -m sluice.commands.savepoint`: take, list and remove savepoints of tiers with state, and
start a tier from one.

`sluice savepoint`, `sluice savepoints` and `sluice start --from` call this command, on a host that
reaches the checkpoints. A savepoint is taken beside the running tier, like a checkpoint for the
next incarnation. Exit codes: 0 done, 1 impossible, 3 a service does not answer.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psycopg
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka import KafkaException

from sluice.api import declarations
from sluice.driver.state.checkpoint_selection import Candidate
from sluice.driver.state.checkpoint_store import Depot, depot_of
from sluice.driver.state.checkpoints import LEDGER_BATCHES, Checkpoints, Code, counts, in_force
from sluice.failures import error_text
from sluice.kafka.reader import StreamError, Streams
from sluice.kafka.stream_identity import Identities
from sluice.sinks.batches import LastBatch
from sluice.sinks.ledger import Ledger
from sluice_ops.channel import Channel, ChannelAwayError, ConflictError, Write, trail_queue
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.exit_codes import AWAY, FAILED
from sluice_ops.model.ids import TierName
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.model.kafka_access import User
from sluice_ops.model.release import Release, TierShape
from sluice_ops.model.savepoint import (
    NAME,
    Savepoint,
    StartFrom,
    records_since,
    why_incompatible,
    why_unusable,
)
from sluice_ops.model.status import ControllerStatus, TierState
from sluice_ops.model.tier import TierSpec
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.site import endpoints, project, site_file

COMMIT_SECONDS = 5.0
"""Spark commits a batch a moment after the ledger has it; so long a savepoint waits for that."""


class SavepointError(Exception):
    """The request is impossible; the message names the cause and the next step."""


@dataclass(frozen=True)
class StateOfTier:
    """A tier with state: what the channel, the ledger and the checkpoints have of it."""

    name: TierName
    where: endpoints.Endpoints
    channel: Channel
    ledger: Ledger
    depot: Depot

    @cached_property
    def wanted(self) -> TierWanted:
        """The request by which the tier runs or not."""
        node = self.channel.read(paths.wanted(self.name), TierWanted)
        return TierWanted() if node is None else node.value

    @property
    def begun(self) -> StartFrom | None:
        """The tier's last start from a savepoint; None: none, or the ledger began anew since."""
        return in_force(self.wanted.savepoint, self.ledger)

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints from which the tier continues."""
        begun = self.wanted.savepoint
        return Checkpoints(self.depot, Code(origin=None if begun is None else begun.origin))

    def shape(self, release: str | None) -> TierShape | None:
        """Return the tier's shape in a release; None if it is unknown."""
        node = None if release is None else self.channel.read(paths.release(release), Release)
        return None if node is None else node.value.tiers.get(self.name)

    def entry(self, what: str, sentence: str = "") -> Write:
        """Return the write of a trail entry."""
        now, by = time.time(), trail_queue.cli_user()
        return trail_queue.write(
            Role.OPERATOR, Entry(at=now, by=by, what=what, outcome=Outcome.DONE, sentence=sentence)
        )


@contextmanager
def _tier(name: str) -> Iterator[StateOfTier]:
    where, site = endpoints.load(), site_file.load(project.site_path())
    tier = declarations.load(site.pipeline).tier(name)
    if tier.state is None or tier.sink is None:
        message = f'tier "{name}" keeps no state, so it has no savepoints'
        raise SavepointError(message)
    with (
        Channel(where.zookeeper, where.credential(Role.OPERATOR)) as channel,
        closing(Ledger(where.postgres_as(Role.OPERATOR), name, 0, tier.sink)) as ledger,
    ):
        yield StateOfTier(TierName(name), where, channel, ledger, depot_of(name, site, where.home))


def take(tier: StateOfTier, name: str | None) -> Savepoint:
    """Take a savepoint of the tier's newest state in the ledger. SavepointError: there is none."""
    name = name or time.strftime("%Y-%m-%d-%H%M%S", time.gmtime())
    if NAME.fullmatch(name) is None:
        message = f"{name!r} is no name of a savepoint: use up to 63 lower-case letters, digits and -"
        raise SavepointError(message)
    end = time.monotonic() + COMMIT_SECONDS
    while (savepoint := _saved(tier, name)) is None:
        if time.monotonic() > end:
            message = (
                f"{tier.depot} has no checkpoint of any of the last {LEDGER_BATCHES} batches of {tier.name} "
                f"in the ledger; run `sluice start {tier.name}` if it does not run, and try again after a "
                "batch"
            )
            raise SavepointError(message)
        time.sleep(0.2)
    try:
        tier.channel.multi([tier.entry(f"savepoint {name} of {tier.name}", f"of batch {savepoint.number}")])
    except ChannelAwayError as error:
        message = f"savepoint {name} of {tier.name} is taken, but the trail has no entry of it: {error}"
        raise SavepointError(message) from error
    return savepoint


def _saved(tier: StateOfTier, name: str) -> Savepoint | None:
    """Take a savepoint; None if no batch of the ledger has a checkpoint."""
    begun = tier.begun
    endings = [last for last in tier.ledger.last_batches(LEDGER_BATCHES) if counts(last, begun)]

    def describe(candidate: Candidate, code: Code) -> Savepoint:
        shape = tier.shape(code.release)
        if shape is None:
            message = (
                f"release {code.release} of {tier.name} is not published, so no start could use its state"
            )
            raise SavepointError(message)
        return Savepoint(
            name=name,
            tier=tier.name,
            taken_at=time.time(),
            by=trail_queue.cli_user(),
            release=code.release,
            shape=shape,
            number=candidate.number,
            batch=candidate.committed.batch,
            ends=dict(candidate.committed.ends),
            streams=endings[0].streams,
            partitions=candidate.committed.partitions,
        )

    try:
        return tier.checkpoints.save(name, endings, describe)
    except FileExistsError:
        message = (
            f"{tier.name} has a savepoint {name} already, or one that was interrupted: choose another name, "
            f"or remove it: `sluice savepoint {tier.name} {name} --remove`"
        )
        raise SavepointError(message) from None


def remove(tier: StateOfTier, name: str) -> None:
    """Remove a savepoint. SavepointError: it does not exist, or the tier still needs it."""
    begun, last = tier.begun, tier.ledger.last()
    # Spark commits the first batch since the start after the ledger has it, and before the second
    if begun is not None and begun.name == name and (last is None or last.number <= begun.after + 1):
        message = (
            f"{tier.name} was started from savepoint {name} and needs it until it has written two batches"
        )
        raise SavepointError(message)
    if NAME.fullmatch(name) is None or not tier.checkpoints.forget(name):
        raise SavepointError(_unknown(tier, name))
    if tier.checkpoints.savepoint(name) is not None:
        message = (
            f"savepoint {name} of {tier.name} is still there; run this command as the user of the drivers"
        )
        raise SavepointError(message)
    tier.channel.multi([tier.entry(f"remove savepoint {name} of {tier.name}")])


@dataclass(frozen=True)
class Start:
    """A start from a savepoint that is possible now."""

    savepoint: Savepoint
    release: str | None
    """The release that continues."""
    last: LastBatch
    """The ledger's last batch."""

    @property
    def again(self) -> int:
        """The number of records that are processed again."""
        return records_since(self.savepoint, self.last.ends)


def check(tier: StateOfTier, name: str, *, accepted: bool) -> Start:
    """Return a start from a savepoint. SavepointError: it is refused.

    `accepted`: an operator accepts that records may go to the tier's streams again.
    """
    status = tier.channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
    line = None if status is None else status.value.tiers.get(tier.name)
    if tier.wanted.running or line is None or line.state is not TierState.STOPPED:
        message = (
            f"{tier.name} is {'unknown to the controller' if line is None else line.state}: only a stopped "
            f"tier starts from a savepoint; run `sluice stop {tier.name}`, and wait until it is stopped"
        )
        raise SavepointError(message)
    savepoint = tier.checkpoints.savepoint(name) if NAME.fullmatch(name) else None
    if savepoint is None:
        raise SavepointError(_unknown(tier, name))
    spec = tier.channel.read(paths.tier(tier.name), TierSpec)
    release = tier.wanted.release or (None if spec is None else spec.value.release)
    shape = tier.shape(release)
    if (why := why_incompatible(savepoint, shape)) is not None or shape is None:
        message = (
            f"{tier.name} cannot continue from savepoint {name} with release {release}: {why}; first give it "
            f"a release that can: `sluice upgrade {tier.name} --release {savepoint.release}`"
        )
        raise SavepointError(message)
    kafka, inputs = tier.where.kafka_as(User.OPERATOR), [stream.name for stream in shape.inputs]
    with closing(Streams(kafka)) as streams:
        oldest = streams.bounds(inputs).oldest
    last, batch = tier.ledger.last(), tier.ledger.batch(savepoint.number)
    why = why_unusable(savepoint, None if batch is None else batch.ends, Identities(kafka).of(inputs), oldest)
    if why is not None or last is None:
        message = f"{tier.name} cannot continue from savepoint {name}: {why}; nothing was changed"
        raise SavepointError(message)
    if shape.outputs and not accepted:
        message = (
            f"{tier.name} writes {', '.join(stream.name for stream in shape.outputs)}: rows that come out "
            "differently from before go to it again, and a reader that adds them up counts them twice; "
            "to accept this, add --yes"
        )
        raise SavepointError(message)
    return Start(savepoint, release, last)


def start(tier: StateOfTier, begin: Start) -> None:
    """Request the start. ConflictError: somebody else changed the tier's request meanwhile."""
    path, name = paths.wanted(tier.name), begin.savepoint.name
    node = tier.channel.read(path, TierWanted)
    before = TierWanted() if node is None else node.value
    if before != tier.wanted:
        message = f"somebody else changed {tier.name} meanwhile; see `sluice trail`, and try again"
        raise ConflictError(message)
    after = before.model_copy(
        update={
            "running": True,
            "attempt": before.attempt + 1,
            "savepoint": StartFrom(name=name, after=begin.last.number, ends=begin.last.ends),
            "by": trail_queue.cli_user(),
            "at": time.time(),
        }
    )
    entry = tier.entry(
        f"start {tier.name} from savepoint {name}",
        f"with release {begin.release}; {begin.again} records are processed again",
    )
    tier.channel.multi([Write(path, after, None if node is None else node.version), entry])


@dataclass(frozen=True)
class Incomplete:
    """A savepoint that is being taken or removed, or was interrupted; no tier can start from it."""

    tier: TierName
    name: str


def all_savepoints() -> tuple[list[Savepoint], list[Incomplete]]:
    """Return the complete and the incomplete savepoints of all published tiers with state."""
    where, site = endpoints.load(), site_file.load(project.site_path())
    with Channel(where.zookeeper, where.credential(Role.OPERATOR)) as channel:
        names = channel.children("/tiers")
        specs = channel.read_many([paths.tier(name) for name in names], TierSpec)
    with_state = [spec.value.name for spec in specs if spec is not None and spec.value.state]
    checkpoints = {name: Checkpoints(depot_of(name, site, where.home)) for name in with_state}
    return (
        [savepoint for each in checkpoints.values() for savepoint in each.savepoints()],
        [
            Incomplete(tier, name)
            for tier, each in checkpoints.items()
            for name in each.incomplete_savepoints()
        ],
    )


def _unknown(tier: StateOfTier, name: str) -> str:
    names = ", ".join(savepoint.name for savepoint in tier.checkpoints.savepoints()) or "none"
    return f"{tier.name} has no savepoint {name!r}; its savepoints: {names}"


def main(arguments: list[str] | None = None) -> int:
    """Carry out one action; return the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        shown, text = _act(chosen)
    except (
        SavepointError,
        endpoints.EndpointsError,
        site_file.SiteError,
        declarations.DeclarationError,
        ConflictError,
    ) as error:
        return _fail(FAILED, str(error))
    except FileNotFoundError as error:
        return _fail(AWAY, str(error))
    except PermissionError as error:
        return _fail(FAILED, f"{error}; run this command as the user of the drivers")
    except OSError as error:
        return _fail(FAILED, str(error))
    except (
        StreamError,
        KafkaException,
        psycopg.Error,
        ChannelAwayError,
        BotoCoreError,
        ClientError,
    ) as error:
        return _fail(AWAY, f"a service does not answer: {error_text(error)}")
    sys.stdout.write(f"{json.dumps(shown) if chosen.json else text}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sluice.commands.savepoint", description="Savepoints of tiers with state."
    )
    actions = parser.add_subparsers(dest="action", required=True)
    for action in ("take", "remove", "start", "list"):
        words = actions.add_parser(action)
        words.add_argument("--json", action="store_true", help="print the result as JSON")
        if action != "list":
            words.add_argument("tier")
            words.add_argument("name", nargs="?" if action == "take" else None)
        if action == "start":
            words.add_argument("--yes", action="store_true", help="accept that records go to streams again")
            words.add_argument("--dry-run", action="store_true", help="only check")
    return parser


def _act(chosen: argparse.Namespace) -> tuple[Any, str]:
    """Carry out an action; return its result for JSON, and for people."""
    if chosen.action == "list":
        savepoints, incomplete = all_savepoints()
        return [*map(_line, savepoints), *map(_line, incomplete)], _text(savepoints, incomplete)
    with _tier(chosen.tier) as tier:
        name = chosen.name
        if chosen.action == "take":
            savepoint = take(tier, name)
            text = f"{tier.name}: savepoint {savepoint.name} has the state as of batch {savepoint.number}."
            return _line(savepoint), f"{text} To go back: {_way_back(savepoint)}"
        if chosen.action == "remove":
            remove(tier, name)
            return {"tier": tier.name, "removed": name}, f"{tier.name}: savepoint {name} is removed."
        begin = check(tier, name, accepted=chosen.yes)
        if not chosen.dry_run:
            start(tier, begin)
        shown = {"tier": tier.name, "savepoint": name, "release": begin.release, "again": begin.again}
        text = (
            f"{tier.name}: {'it could start' if chosen.dry_run else 'start requested'} from savepoint {name} "
            f"with release {begin.release}. {begin.again} records are processed again; the table gets their "
            "rows when the tier has caught up."
        )
        return shown | {"dry_run": chosen.dry_run}, text


def _way_back(savepoint: Savepoint) -> str:
    tier = savepoint.tier
    return f"`sluice stop {tier}`, then `sluice start {tier} --from {savepoint.name}`"


def _line(savepoint: Savepoint | Incomplete) -> dict[str, Any]:
    shown = ("tier", "name", "taken_at", "by", "release", "number", "partitions")
    values = {name: getattr(savepoint, name, None) for name in shown}
    return values | {"complete": isinstance(savepoint, Savepoint)}


def _text(savepoints: Sequence[Savepoint], incomplete: Sequence[Incomplete]) -> str:
    """Return the savepoints for people."""
    lines = [
        f"{each.tier}: savepoint {each.name} is incomplete: it is being taken or removed now, or that was "
        f"interrupted. To remove an interrupted one: `sluice savepoint {each.tier} {each.name} --remove`"
        for each in incomplete
    ]
    if savepoints:
        lines.insert(0, _table(savepoints))
    return "\n".join(lines) or "No tier has a savepoint. To take one: `sluice savepoint TIER NAME`"


def _table(savepoints: Sequence[Savepoint]) -> str:
    rows = [
        ("tier", "savepoint", "taken", "by", "release", "batch", "partitions"),
        *(
            (x.tier, x.name, _moment(x.taken_at), x.by, x.release or "-", str(x.number), str(x.partitions))
            for x in savepoints
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _fail(code: int, message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
