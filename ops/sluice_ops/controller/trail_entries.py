"""The entries that a pass adds to the trail, in the same request as its decisions.

Entries tell of changes that began, were refused, were aborted or ended, of hosts in quarantine or
with a notice of EC2, and of a changed site file.
"""

from collections.abc import Iterator

from sluice_ops.channel import Write
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies.ending_hosts import NOTICE
from sluice_ops.controller.policies.quarantine import QUARANTINE
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import HostRecord
from sluice_ops.model.change import CONTROLLER, ChangeSpec, ChangeState, Operation, Result, Step
from sluice_ops.model.ids import ChangeId, HostName
from sluice_ops.model.share import Layer
from sluice_ops.model.trail import SITE_FILE, Entry, Outcome, layer_of, what_of
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.snapshot import site_settings

_ENDED = {ChangeState.DONE: Outcome.DONE, ChangeState.ABORTED: Outcome.ABORTED}


def writes(draft: Draft) -> Iterator[Write]:
    """Yield the writes of new entries."""
    yield from {write.path: write for write in _of_steps(draft)}.values()
    yield from _of_changes(draft)
    for name, host in draft.view.hosts.items():
        record = draft.records[name]
        if record is not host.record and record.by == QUARANTINE and record.until != host.record.until:
            yield _of_quarantine(draft, name, record)
        if record is not host.record and record.by == NOTICE != host.record.by and host.observed is not None:
            yield _of_host(draft, f"cordon {name}", host.observed.ending(name) or "")
    if draft.view.site is not None and (
        differences := site_settings.differences(draft.view.site, draft.site)
    ):
        layer = Layer.BASE.name.lower()
        entry = Entry(
            at=draft.now,
            by=SITE_FILE,
            layer=layer,
            what=differences,
            outcome=Outcome.DONE,
            sentence="the new settings apply from now on",
        )
        yield Write(paths.trail(Role.CONTROLLER, f"site.{draft.now * 1000:.0f}"), entry, None)


def _of_steps(draft: Draft) -> Iterator[Write]:
    """Yield the entries of steps that have ended.

    Two refused steps of one change have the same entry.
    """
    for identity, result in draft.results.items():
        if identity not in draft.view.operations:
            continue
        operation = draft.view.operations[identity].operation
        outcome = None if operation.dry_run else _outcome(operation, result)
        if outcome is not None:
            sentence = _begun(draft, operation) if outcome is Outcome.BEGUN else result.sentence
            yield _write(draft, operation.change, operation.spec, operation.by, outcome, sentence)


def _of_changes(draft: Draft) -> Iterator[Write]:
    """Yield the entries of changes that ask for approval, or have ended."""
    for change in draft.changes.values():
        before = draft.view.changes.get(change.id)
        if change.state is ChangeState.WAITING and before is None and change.asked is not None:
            asked = change.asked.why
            yield _write(draft, change.id, change.spec, change.by, Outcome.ASKED, asked)
        if (
            change.state in _ENDED
            and not change.never_began
            and (before is None or before.state is not change.state)
        ):
            yield _write(draft, change.id, change.spec, change.by, _ENDED[change.state])


def _of_quarantine(draft: Draft, host: HostName, record: HostRecord) -> Write:
    """Return the entry of a quarantine that began or ended.

    No change reports it, as nobody asked for it.
    """
    has_begun = bool(record.reason)
    return _of_host(
        draft,
        f"{'quarantine' if has_begun else 'return'} {host}",
        record.reason if has_begun else "the quarantine is over",
    )


def _of_host(draft: Draft, what: str, sentence: str) -> Write:
    entry = Entry(at=draft.now, by=CONTROLLER, what=what, outcome=Outcome.DONE, sentence=sentence)
    name = f"{entry.what.replace(' ', '-')}.{draft.now * 1000:.0f}"
    return Write(paths.trail(Role.CONTROLLER, name), entry, None)


def _begun(draft: Draft, operation: Operation) -> str:
    """Return why a change began: who approved it, or why the controller posted it."""
    asked = draft.changes[operation.change].asked
    return operation.reason if asked is None else f"approved by {asked.approved_by}"


def _outcome(operation: Operation, result: Result) -> Outcome | None:
    if operation.step is Step.ABORT:
        return Outcome.ABORT
    if operation.step is Step.APPROVAL:
        return None if result.ok else Outcome.REFUSED
    if operation.step is Step.PREFLIGHT:
        return Outcome.BEGUN if result.ok else Outcome.REFUSED
    return None


def _write(  # noqa: PLR0913, PLR0917
    draft: Draft, change: ChangeId, spec: ChangeSpec, by: str, outcome: Outcome, sentence: str = ""
) -> Write:
    entry = Entry(
        at=draft.now,
        by=by,
        layer=layer_of(KINDS[spec.kind].layer, by, spec.layer),
        what=what_of(spec),
        change=change,
        outcome=outcome,
        sentence=sentence,
    )
    return Write(paths.trail(Role.CONTROLLER, f"{change}.{outcome}.{draft.now * 1000:.0f}"), entry, None)
