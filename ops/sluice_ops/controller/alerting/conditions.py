"""The bad states of a site, found in one look of the leader. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from urllib.parse import quote, urlencode

from sluice_ops.controller.decide import Decision
from sluice_ops.controller.pass_state import PassInputs
from sluice_ops.model.alert import AIRFLOW, CHANGE_WAITS, PAGE, AlertSettings, Condition, Report, author_reads
from sluice_ops.model.assignment import HUNG_SINCE, HostState, Observed, UnitKind
from sluice_ops.model.change import (
    BEFORE_BEGIN,
    OWN,
    UPGRADE,
    ChangeRecord,
    ChangeSpec,
    ChangeState,
    Operation,
    Result,
    Step,
)
from sluice_ops.model.ids import ChangeId, HostName, Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationReport, Phase, State
from sluice_ops.model.joining import shown
from sluice_ops.model.load import TierLoad
from sluice_ops.model.rolling import NOT_BEFORE
from sluice_ops.model.status import STARVED, Loss, TierState, TierStatus
from sluice_ops.model.tier import Standby, awaits_upgrade
from sluice_ops.model.trail import what_of
from sluice_ops.model.wording import listed, workers
from sluice_ops.planning.alerts.catalogue import (
    BY_NAME,
    CERTIFICATE_DAYS,
    EVENT_SECONDS,
    QUARANTINE_PART,
    TOKEN_PART,
)
from sluice_ops.planning.placement.cluster import BURST_ZONE, Rules
from sluice_ops.planning.placement.shares import target
from sluice_ops.snapshot.rules import with_view
from sluice_ops.snapshot.view import TierView, View

STEADY_SECONDS = 300.0
"""How long a tier has to run after a failed driver until the failure is over."""
CATCH_UP_SECONDS = 1800.0
"""How long a tier may work off the backlog of a stop before its lag is told."""
FIRST_SECONDS = 60.0
"""A tier has measured its lag within this time after its start."""
DAY_SECONDS = 86_400.0
READY = frozenset({State.READY, State.RUNNING})
LASTING = frozenset({"certificate-ends", "task-failed"})
"""Kinds that do not come from the channel."""


@dataclass(frozen=True)
class EndedStep:
    """One ended step of a change."""

    operation: Operation
    result: Result


@dataclass(frozen=True)
class UnusedToken:
    """A join token that no machine has claimed. Epoch seconds by ZooKeeper's clock."""

    made_at: float
    ends_at: float


@dataclass(frozen=True)
class Look:
    """Everything that a look for conditions reads."""

    view: View
    decision: Decision
    inputs: PassInputs
    ended: tuple[EndedStep, ...] = ()
    """The steps that have a result, as far as the channel keeps them."""
    losses: Mapping[TierName, Loss] = field(default_factory=dict)
    loads: Mapping[TierName, TierLoad] = field(default_factory=dict)
    certificates: Mapping[str, float] = field(default_factory=dict)
    """File of a certificate → when the certificate ends. Epoch seconds."""
    tokens: Mapping[str, UnusedToken] = field(default_factory=dict)
    """By host that is to join."""
    reports: Mapping[str, Report] = field(default_factory=dict)
    """The last report of each task in Airflow."""
    blocked: str | None = None
    """Why nothing is decided: a node that every decision needs cannot be read."""

    @property
    def settings(self) -> AlertSettings:
        """The site's settings of alerts."""
        return self.inputs.rules.alerts

    @property
    def now(self) -> float:
        """The wall clock."""
        return self.inputs.now

    def link(self, path: str) -> str:
        """Return the address of a page in Airflow; empty if the site names no Airflow."""
        base = self.settings.airflow
        return "" if base is None else f"{base.rstrip('/')}/{path}"

    def page(self, route: str) -> str:
        """Return the address of a route of the pipeline's page in Airflow."""
        address, own = self.link(f"{PAGE}/{quote(route)}"), self.settings.connection
        return address if own is None or not address else f"{address}?{urlencode({'connection': own})}"

    @cached_property
    def lost_hosts(self) -> tuple[HostName, ...]:
        """The hosts without an agent that nobody has written off."""
        return tuple(
            name
            for name, host in self.view.hosts.items()
            if host.record.seen(live=host.live) is HostState.LOST and not host.record.written_off
        )

    @cached_property
    def rules(self) -> Rules:
        """The rules of the site file under the layers."""
        return with_view(replace(self.inputs.rules, layers=self.view.layers), self.view)

    @cached_property
    def host_causes(self) -> tuple[str, ...]:
        """The keys of the conditions of lost hosts."""
        return ("brake:hosts", *(f"host-lost:{name}" for name in self.lost_hosts))


def conditions(look: Look) -> list[Condition]:
    """Return all conditions that hold now.

    While nothing is decided, only the reason and what is not in the channel are known.
    """
    present = [*_site(look), *_certificates(look), *_reports(look)]
    if look.blocked is None:
        present += [*_sources(look), *_writeless_streams(look)]
        present += [*_hosts(look), *_tokens(look), *_changes(look), *_waiting(look), *_reclaims(look)]
        for tier in look.view.tiers.values():
            present += _tier(look, tier)
    return [_with_link(look, condition) for condition in present]


def _with_link(look: Look, condition: Condition) -> Condition:
    """Add the address of the condition's page in Airflow, unless it has another one."""
    if condition.link:
        return condition
    return condition.model_copy(update={"link": look.page(condition.page or "alerts")})


def is_unknown(look: Look, subject: str, kind: str) -> bool:
    """Tell whether this look says nothing about an alert: a node that it needs cannot be read."""
    if look.blocked is not None:
        return kind not in {"channel-unreadable", "site-refused", *LASTING}
    return subject.partition("/")[0] in {*look.view.unread, *look.view.unread_hosts}


def _site(look: Look) -> Iterator[Condition]:
    unreadable = [look.blocked] if look.blocked is not None else look.view.unreadable
    if unreadable:
        yield BY_NAME["channel-unreadable"].condition("channel", detail="; ".join(unreadable))
    if look.inputs.rules.refused:
        yield BY_NAME["site-refused"].condition("site-file", detail=look.inputs.rules.refused)


def _certificates(look: Look) -> Iterator[Condition]:
    for file, ends in look.certificates.items():
        if ends - look.now < CERTIFICATE_DAYS * DAY_SECONDS:
            yield BY_NAME["certificate-ends"].condition(file, detail=file, value=str(CERTIFICATE_DAYS))


def _tokens(look: Look) -> Iterator[Condition]:
    for host, token in look.tokens.items():
        begins = token.ends_at - TOKEN_PART * (token.ends_at - token.made_at)
        if begins <= look.now < token.ends_at:
            value = shown(token.ends_at)
            yield BY_NAME["token-ends"].condition(host, ends_at=token.ends_at, host=host, value=value)


def _reports(look: Look) -> Iterator[Condition]:
    aborted = {change.id for change in look.view.changes.values() if change.state is ChangeState.ABORTED}
    for name, report in look.reports.items():
        if look.now < report.at + EVENT_SECONDS and report.change not in aborted:
            yield BY_NAME["task-failed"].condition(
                f"{name}/{report.at:.0f}",
                detail=report.reason,
                link=report.link,
                ends_at=report.at + EVENT_SECONDS,
                recovers=False,
                what=report.what,
                did=report.did,
                do=report.do,
            )


def _reclaims(look: Look) -> Iterator[Condition]:
    """Yield the slots of batch that go back, or went back, later than they should."""
    measured = look.view.batch_reclaims
    over = [each for each in measured.going if look.now - each.at > each.limit]
    for each in (*over, *(each for each in measured.ended if each.late)):
        if look.now < each.at + EVENT_SECONDS:
            waits = "still awaited" if each.seconds is None else f"after {each.seconds:g} s"
            yield BY_NAME["reclaim-late"].condition(
                f"{each.host}/{each.slot}/{each.at:.0f}",
                detail=f"{each.slot} on {each.host}, {waits}; the limit is {each.limit:g} s; for {each.by}",
                causes=(f"host-lost:{each.host}",),
                ends_at=each.at + EVENT_SECONDS,
                recovers=False,
            )


def _hosts(look: Look) -> Iterator[Condition]:
    if look.decision.braked:
        braked = look.decision.braked
        yield BY_NAME["brake"].condition("hosts", detail=listed(braked), value=str(len(braked)))
    for name in look.lost_hosts:
        causes = ("brake:hosts",) if name in look.decision.braked else ()
        yield BY_NAME["host-lost"].condition(name, causes=causes, host=name)
    changing = any(change.state is ChangeState.ACTIVE for change in look.view.changes.values())
    for name, host in look.view.hosts.items():
        if host.record.reason:
            yield BY_NAME["host-quarantined"].condition(name, detail=host.record.reason, host=name)
        idle = host.live and host.facts is not None and host.facts.zone == BURST_ZONE
        if idle and not host.assignment.units and not changing:
            yield BY_NAME["instance-idle"].condition(name, host=name)
        for process, at, kind, how in () if host.observed is None else _hung(host.observed):
            if look.now < at + EVENT_SECONDS:
                yield BY_NAME["process-hung"].condition(
                    f"{name}/{process}",
                    detail=how,
                    ends_at=at + EVENT_SECONDS,
                    recovers=False,
                    kind=kind,
                    host=name,
                )


def _sources(look: Look) -> Iterator[Condition]:
    """Yield the sources that are gone, have just failed, or were taken over."""
    for name, source in look.view.sources.items():
        record, taken = source.record, source.taken
        if taken is not None and look.now < taken.at + EVENT_SECONDS:
            yield BY_NAME["source-taken-over"].condition(
                f"{name}/{taken.at:.0f}",
                detail=taken.sentence,
                ends_at=taken.at + EVENT_SECONDS,
                recovers=False,
                source=record.name,
                stream=record.stream,
                host=taken.host,
            )
        of_host = f"host-lost:{record.host}"
        causes = ("brake:hosts", of_host) if of_host in look.host_causes else ()
        if not source.live:
            yield BY_NAME["source-down"].condition(
                name,
                detail=record.ended or "",
                causes=causes,
                source=record.name,
                stream=record.stream,
                host=record.host,
            )
        elif (
            record.failures
            and look.now < record.since + STEADY_SECONDS
            and not _was_told(look, f"source-down:{name}", record.since)
        ):
            yield BY_NAME["source-failed"].condition(
                name,
                detail=record.failures[-1].how,
                source=record.name,
                stream=record.stream,
                host=record.host,
            )


def _was_told(look: Look, key: str, at: float) -> bool:
    """Tell whether an alert was told that lasted until this time."""
    alerts = look.view.alerts
    return any(
        alert.key == key and alert.told_at is not None and (alert.gone_at or look.now) >= at
        for alert in (*alerts.alerts.values(), *alerts.ended)
    )


def _writeless_streams(look: Look) -> Iterator[Condition]:
    """Yield the streams whose sources write nothing: a fault of Kafka is one alert for all."""
    reasons: dict[str, list[str]] = {}
    for source in look.view.sources.values():
        record = source.record
        if source.live and record.trouble is not None:
            reason = f"{record.name} on {record.host}: {record.trouble.sentence}"
            reasons.setdefault(record.stream, []).append(reason)
    for stream, of_stream in reasons.items():
        yield BY_NAME["source-stands-still"].condition(stream, detail="; ".join(of_stream), stream=stream)


def _hung(observed: Observed) -> Iterator[tuple[str, float, str, str]]:
    """Yield the hung processes of a host, when, of which kind, and how; a driver has its own
    alert.
    """
    if observed.agent_hung_at is not None:
        yield f"agent/{observed.agent_hung_at:.0f}", observed.agent_hung_at, "host agent", ""
    for unit in observed.hurt:
        since = (unit.exit or "").partition(HUNG_SINCE)[2].split()[:1]
        if since and unit.id.startswith(UnitKind.SLOT):
            yield f"{unit.id}/{since[0]}", unit.since, UnitKind.SLOT, unit.exit or ""


# -- changes


def _changes(look: Look) -> Iterator[Condition]:
    """Yield a condition for each request that failed or was refused, and not done since.

    Several failures of one request are one condition.
    """
    last: dict[str, tuple[float, Condition | None]] = {}
    for at, what, condition in [*_ended_changes(look), *_refusals(look)]:
        if what not in last or at >= last[what][0]:
            last[what] = at, condition
    for at, condition in last.values():
        if condition is not None and look.now < at + EVENT_SECONDS:
            yield condition


def _ended_changes(look: Look) -> Iterator[tuple[float, str, Condition | None]]:
    steps: dict[ChangeId, list[EndedStep]] = {}
    for ended in look.ended:
        steps.setdefault(ended.operation.change, []).append(ended)
    for change in look.view.changes.values():
        if change.state is ChangeState.ACTIVE or change.ended_at is None:
            continue
        request = _request(change.spec)
        if change.never_began:
            yield change.ended_at, request, _refused(look, change, steps.get(change.id, []))
            continue
        failed = change.state is ChangeState.ABORTED
        condition = _failed(look, change, steps.get(change.id, [])) if failed else None
        yield change.ended_at, request, condition


def _request(spec: ChangeSpec) -> str:
    """Return what is the same in a request and its repetition.

    A bad release is corrected by the next one, so the release of an upgrade is no part of it.
    """
    return what_of(spec.model_copy(update={"release": None}) if spec.kind == UPGRADE else spec)


def _failed(look: Look, change: ChangeRecord, steps: list[EndedStep]) -> Condition:
    reasons = [step.result.sentence for step in steps if not step.result.ok]
    aborts = [step for step in steps if step.operation.step is Step.ABORT]
    if not reasons and aborts:
        reasons = [f"aborted by {aborts[0].operation.by}; {aborts[0].result.sentence}"]
    hosts = {
        host
        for move in change.plan.moves
        for place in (move.before, move.after)
        if place is not None
        for host in place.hosts
    }
    lost = [f"host-lost:{name}" for name in look.lost_hosts if name in hosts]
    page = f"changes/{change.id}"
    return _of_request(
        "change-failed", look, change.spec, change.by, reasons, change.ended_at or 0.0, tuple(lost), page
    )


def _waiting(look: Look) -> Iterator[Condition]:
    """Yield the changes that wait for approval."""
    for change in look.view.changes.values():
        if change.state is ChangeState.WAITING and change.asked is not None and not change.asked.approved_by:
            yield BY_NAME[CHANGE_WAITS].condition(
                change.id,
                detail=change.asked.why,
                what=what_of(change.spec),
                by=change.by,
                change=change.id,
                value=change.asked.limit,
            )


def _refused(look: Look, change: ChangeRecord, steps: list[EndedStep]) -> Condition | None:
    """Return the condition of a change that was not approved.

    None if a person withdrew it, or if its run asks again later.
    """
    if any(step.operation.step is Step.ABORT or NOT_BEFORE in step.result.details for step in steps):
        return None
    reasons = [step.result.sentence for step in steps if not step.result.ok]
    page = f"changes/{change.id}"
    return _of_request(
        "change-refused", look, change.spec, change.by, reasons, change.ended_at or 0.0, page=page
    )


def _refusals(look: Look) -> Iterator[tuple[float, str, Condition | None]]:
    """Yield the refused requests, but not those whose authors have read why.

    A dry run that is not refused ends the alert of the same dry run.
    """
    for ended in look.ended:
        operation, result = ended.operation, ended.result
        by, at = operation.by, result.finished_at
        if operation.step not in BEFORE_BEGIN or by in OWN or author_reads(by, dry_run=operation.dry_run):
            continue
        if NOT_BEFORE in result.details:  # its run asks again later
            continue
        prefix = "dry run of " if operation.dry_run else ""
        request = prefix + _request(operation.spec)
        if not result.ok:
            reasons = [result.sentence]
            yield (
                at,
                request,
                _of_request("change-refused", look, operation.spec, by, reasons, at, prefix=prefix),
            )
        elif operation.dry_run:
            yield at, request, None


def _of_request(  # noqa: PLR0913, PLR0917 - the parts of the text
    kind: str,
    look: Look,
    spec: ChangeSpec,
    by: str,
    reasons: Iterable[str],
    at: float,
    causes: tuple[str, ...] = (),
    page: str = "",
    prefix: str = "",
) -> Condition:
    if by in OWN:
        again = "wait: the controller tries again by itself"
    elif by.startswith(AIRFLOW):
        again = f"trigger {by.removeprefix(AIRFLOW).partition('/')[0]} in Airflow again"
    else:
        again = "repeat the command, first with --dry-run"
    return BY_NAME[kind].condition(
        f"{prefix}{_request(spec)}".replace(" ", "_"),
        detail="; ".join(reasons),
        causes=causes,
        link="" if page else _run_of(look, by),
        page=page,
        ends_at=at + EVENT_SECONDS,
        what=f"{prefix}{what_of(spec)}",
        by=by,
        again=again,
    )


def _run_of(look: Look, by: str) -> str:
    """Return the address of the run in Airflow that requested a change; empty: no run did."""
    dag, _, run = by.removeprefix(AIRFLOW).partition("/")
    return look.link(f"dags/{dag}/runs/{run}") if by.startswith(AIRFLOW) and run else ""


# -- tiers


def _tier(look: Look, tier: TierView) -> Iterator[Condition]:
    name = tier.spec.name
    loss = look.losses.get(name)
    if loss is not None:
        yield BY_NAME["records-lost"].condition(name, detail=loss.sentence, tier=name)
    status = look.decision.tiers.get(name)
    if status is None or not tier.wanted.running:
        return
    causes = _causes(look, tier)
    error = status.error or status.sentence
    if status.state is TierState.FAILED:
        yield BY_NAME["tier-given-up"].condition(name, detail=error, causes=causes, tier=name)
    elif status.state in {TierState.WAITING, TierState.STARTING}:
        detail = f"{status.sentence}; last error: {status.error}" if status.error else status.sentence
        yield BY_NAME["tier-down"].condition(name, detail=detail, causes=causes, tier=name)
    yield from _drivers(look, tier)
    own = tuple(f"{kind}:{name}" for kind in ("tier-given-up", "tier-down", "task-hangs", "tier-starved"))
    yield from _work(look, tier, status, (*causes, *own))


def _causes(look: Look, tier: TierView) -> tuple[str, ...]:
    """Return the lost hosts on which the tier's owner has units."""
    spec = tier.incarnations.get(tier.owner.owner) if tier.owner.owner is not None else None
    hosts = frozenset() if spec is None else spec.placement.hosts
    return ("brake:hosts", *(f"host-lost:{name}" for name in look.lost_hosts if name in hosts))


def _owner_report(tier: TierView) -> IncarnationReport | None:
    return tier.reports.get(tier.owner.owner) if tier.owner.owner is not None else None


def _drivers(look: Look, tier: TierView) -> Iterator[Condition]:
    """Yield the last failure of a driver that was no part of a change, and the last hang."""
    name, owner, report = tier.spec.name, tier.owner.owner or 0, _owner_report(tier)
    in_failed_changes = {
        started.get(name)
        for change in look.view.changes.values()
        if change.state is not ChangeState.DONE
        for started in (change.incarnations, change.canaries)
    }
    failed = [
        number
        for number, each in tier.reports.items()
        if each.state is State.FAILED and number not in in_failed_changes
    ]
    if failed:
        last = tier.reports[max(failed)]
        steady = (
            report is not None
            and report.state is State.RUNNING
            and owner > max(failed)
            and look.now - report.since >= STEADY_SECONDS
        )
        if not steady and look.now < last.since + EVENT_SECONDS:
            yield BY_NAME["driver-failed"].condition(
                name,
                detail=f"incarnation {max(failed)}: {last.error or 'it left no message'}",
                causes=(f"tier-given-up:{name}",),
                ends_at=last.since + EVENT_SECONDS,
                tier=name,
            )
    hung = [number for number, spec in tier.incarnations.items() if spec.hung is not None]
    after = [spec.created_at for number, spec in tier.incarnations.items() if hung and number > max(hung)]
    if after and look.now < min(after) + EVENT_SECONDS:
        spec = tier.incarnations[max(hung)]
        yield BY_NAME["driver-hung"].condition(
            f"{name}/{max(hung)}",
            detail=spec.hung or "",
            ends_at=min(after) + EVENT_SECONDS,
            recovers=False,
            tier=name,
        )


def _work(look: Look, tier: TierView, status: TierStatus, causes: tuple[str, ...]) -> Iterator[Condition]:
    """Yield what is wrong with the work of a tier that should run."""
    name, report = tier.spec.name, _owner_report(tier)
    if report is not None and report.hung is not None:
        yield BY_NAME["task-hangs"].condition(name, detail=report.hung, causes=causes, tier=name)
    if status.starved is not None:
        where = status.starved.sentence.removeprefix(STARVED)
        yield BY_NAME["tier-starved"].condition(name, detail=f"on {where}", tier=name)
    if status.pressure is not None and not _catches_up(look, status, report):
        yield BY_NAME["tier-lags" if tier.spec.holds else "branch-lags"].condition(
            name, detail=f"{name} {status.pressure.sentence}", causes=causes, tier=name
        )
    expiry = status.expiry(look.now)
    if expiry is not None and expiry.near:
        yield BY_NAME["backlog-expires"].condition(name, detail=expiry.sentence, tier=name)
    load = look.loads.get(name)
    if load is not None and load.rate_quarantined > QUARANTINE_PART * max(load.rate_done, load.rate_in):
        detail = f"{load.rate_quarantined:g} of {load.rate_done:g} records/s are bad"
        yield BY_NAME["quarantine-grows"].condition(name, detail=detail, tier=name)
    if report is not None and (report.gap_seconds or 0.0) > look.settings.gap_seconds:
        spec = tier.incarnations.get(tier.owner.owner or Incarnation(0))
        since = report.since if spec is None else spec.created_at
        if look.now < since + EVENT_SECONDS:
            yield BY_NAME["gap"].condition(
                f"{name}/{tier.owner.owner}",
                detail=f"{report.gap_seconds:.0f} s; the limit is {look.settings.gap_seconds:.0f} s",
                ends_at=since + EVENT_SECONDS,
                recovers=False,
                tier=name,
            )
    yield from _reserve(look, tier, status)


def _catches_up(look: Look, status: TierStatus, report: IncarnationReport | None) -> bool:
    """Tell whether the tier lags since its start, and started only recently."""
    pressure = status.pressure
    if pressure is None or pressure.lag is None or report is None or report.state is not State.RUNNING:
        return False
    return (
        abs(pressure.since - report.since) < FIRST_SECONDS and abs(look.now - report.since) < CATCH_UP_SECONDS
    )


def _reserve(look: Look, tier: TierView, status: TierStatus) -> Iterator[Condition]:
    """Yield what a running tier lacks: its standby, or workers."""
    name, record = tier.spec.name, tier.owner
    if status.state is not TierState.RUNNING or record.owner is None:
        return
    beside = None if record.standby is None else tier.reports.get(record.standby)
    if tier.spec.standby is not Standby.NONE and (beside is None or beside.state not in READY):
        yield BY_NAME["standby-missing"].condition(
            name, detail=status.sentence, causes=look.host_causes, tier=name
        )
    changing = any(
        change.state is ChangeState.ACTIVE and name in change.incarnations
        for change in look.view.changes.values()
    )
    spec = tier.incarnations.get(record.owner)
    if spec is None or changing or record.phase is not Phase.STEADY:
        return
    wanted = target(name, look.rules)
    has = len(spec.placement.slots)
    if has < wanted.k and not awaits_upgrade(tier.spec, has, spec.release):
        yield BY_NAME["share-short"].condition(
            name,
            detail=f"it has {workers(has)}; {wanted.owner} gives it {wanted.k}",
            causes=look.host_causes,
            tier=name,
        )
