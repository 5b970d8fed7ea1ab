"""The interface of a kind of change: its form, steps, effect and rules.

`kinds` implements the interface, one module for each kind. The command line, Airflow's forms and
runbooks, the planner, the checker and the controller call it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol

from sluice_ops.model.change import ChangeSpec, Move, Plan, Step
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer, Layers
from sluice_ops.model.tier import TierSpec
from sluice_ops.planning.placement.cluster import Cluster, TierNow
from sluice_ops.planning.placement.drift import lacks_only_spares, right_numbers
from sluice_ops.planning.placement.shares import Target
from sluice_ops.planning.shortage.in_place import joins_in_place

MOVE_STEPS = (Step.PREFLIGHT, Step.PREPARE, Step.CUT, Step.VERIFY, Step.RELEASE)


class Input(StrEnum):
    """The type of a field, which decides the widget of the form and the type on the
    command line.
    """

    HOST = "host"
    TIER = "tier"
    TENANT = "tenant"
    """A tier, or `batch`."""
    PLACE = "place"
    """A host's name, `zone:…`, `rack:…` or `label:…`."""
    COUNT = "count"
    AMOUNT = "amount"
    """A number of slots, or a per cent of the cluster."""
    RELEASE = "release"
    SHIFT = "shift"
    FAULT = "fault"
    """A fault of a game day."""
    LAYER = "layer"
    TIME = "time"
    """A duration or a time of day. A form of this type always fills `ChangeSpec.until`."""
    WORKERS = "workers"


@dataclass(frozen=True)
class Field:
    """One field of a change that a person fills in."""

    name: str
    """The field of `ChangeSpec`."""
    input: Input
    help: str
    required: bool = True
    option: bool = False
    """Whether the command line takes the field as `--name` instead of as a positional argument."""
    default: int | None = None


@dataclass(frozen=True)
class Option:
    """An option of a kind's command that no field of `ChangeSpec` holds."""

    name: str
    """The name of the command's parameter."""
    flag: str
    """The option as typed, such as `--yes`."""
    help: str
    metavar: str | None = None
    """The name of its value in the help; None: it has no value."""


HOST = Field("host", Input.HOST, "The host's name, as `sluice hosts` lists it.")
TIER = Field("tier", Input.TIER, "The tier's name, as `sluice tiers` lists it.")
ANY_TIER = Field("tier", Input.TIER, "The tier's name. Without it, all tiers.", required=False)


class TierCheck(Protocol):
    """The checker's findings on one running tier, made without the planner.

    Each text continues a sentence that begins with the tier's name.
    """

    @property
    def on_burst_hosts(self) -> Iterable[str]:
        """The burst hosts that the tier is on and has to leave."""

    @property
    def minimum_is_lacking(self) -> bool:
        """Whether any tier of the pipeline has fewer slots than its minimum."""

    def breaches(self) -> Iterable[str]:
        """Return the breaches of the rules that always hold."""

    def displaced(self, *, gone: bool = False) -> Iterable[str]:
        """Return the parts of the tier that are at a wrong place.

        With `gone`, parts on unknown hosts count too.
        """

    def miscounted(self, *, exactly: bool = False) -> Iterable[str]:
        """Return how the number of slots is wrong.

        Without `exactly`, the tier may have the slots of its burst elsewhere while the burst's
        hosts are lost.
        """


class Kind:
    """One kind of change. A subclass sets the attributes and overrides methods as it needs."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """The text of the command's help, and the beginning of the runbook's page."""
    details: ClassVar[str] = ""
    """The second paragraph of the runbook's page; may be empty."""
    example: ClassVar[str]
    """A whole command line, for the end of the command's help."""
    steps: ClassVar[tuple[Step, ...]] = MOVE_STEPS
    """The steps in order. The last step ends the change and releases the maintenance lock."""
    fields: ClassVar[tuple[Field, ...]] = ()
    options: ClassVar[tuple[Option, ...]] = ()
    """The further options of the command."""
    runbook: ClassVar[str] = ""
    """The id of the DAG that is made from this kind; empty if a DAG file, or no DAG, carries it
    out.
    """
    command: ClassVar[bool] = True
    """Whether the command line has a command of this name."""
    layer: ClassVar[Layer] = Layer.PERSON
    """The layer of the change, unless its spec names another layer."""

    own: ClassVar[bool] = False
    """Whether only the controller, and no person, posts changes of this kind."""
    exact: ClassVar[bool] = False
    """Whether the planner refuses the whole change if one of its moves finds no room."""
    forced: ClassVar[bool] = False
    """Whether tiers must leave their hosts, even if they get fewer slots elsewhere."""
    may_wait: ClassVar[bool] = False
    """Whether a tier that finds no room may stay as it is. The plan then has a note."""
    resizes: ClassVar[bool] = False
    """Whether the change only sets numbers, so that a tier may release workers without a
    handover.
    """
    empties_host: ClassVar[bool] = False
    """Whether the planner places nothing on the spec's hosts."""
    empties_burst_hosts: ClassVar[bool] = False
    """Whether the planner moves tiers off burst hosts, unless the tier's place is there."""
    launches: ClassVar[bool] = False
    """Whether instances are launched before the first step."""
    proves_host: ClassVar[bool] = False
    """Whether the change needs a worker that processes records on each of the spec's hosts."""
    repairs: ClassVar[bool] = False
    """Whether the change moves drifted tiers to where a plan would place them."""
    sets_tier: ClassVar[bool] = False
    """Whether the release step keeps the new incarnation's settings for every later incarnation."""
    waits_for_lock: ClassVar[bool] = False
    """Whether the change waits until another change ends, instead of being refused."""
    held_back: ClassVar[bool] = False
    """Whether the change begins only in the site file's `reboot_window`, while no alert is open."""
    unpredicted: ClassVar[str] = ""
    """The part of the change's time that is unknown until a change of this kind was timed here."""

    @property
    def operator(self) -> str:
        """The name of the Airflow operator that carries out the whole change; a runbook is set."""
        return f"Sluice{self.runbook.title().replace('_', '')}Operator"

    @property
    def moves(self) -> bool:
        """Whether the change hands tiers over, or has tiers release workers."""
        return Step.CUT in self.steps

    @property
    def planned_only(self) -> bool:
        """Whether the kind is only planned. A write to `config/wanted` carries it out."""
        return self.steps == (Step.PREFLIGHT,)

    def is_of_all(self, spec: ChangeSpec) -> bool:
        """Return whether a change that moves nothing applies to every tier."""
        return False

    def whole_tiers(self, spec: ChangeSpec, tiers: Collection[TierSpec]) -> frozenset[TierName]:
        """Return the tiers that a pause or resume concerns as a whole, and not some workers."""
        if not spec.named_tiers and not spec.workers:
            return frozenset(tier.name for tier in tiers)
        return frozenset(spec.named_tiers)

    def complete(self, spec: ChangeSpec, tier_release: str | None, cluster: Cluster) -> ChangeSpec:
        """Return the spec with the values that preflight fills in.

        `tier_release` is the newest published release of the spec's tier.
        """
        return spec

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        """Return notes on the change.

        Raise RefusedError if the change is impossible, or names something unknown.
        """
        return []

    def refuse_late(self, spec: ChangeSpec, now: float) -> None:
        """Raise RefusedError if a time in the spec is past."""

    def effect(self, spec: ChangeSpec) -> str:
        """Return a sentence on the effect of a change that moves nothing."""
        return f"{self.name} {spec.host or spec.tier or ''}".strip()

    def plan(self, spec: ChangeSpec, cluster: Cluster, notes: Iterable[str]) -> Plan:
        """Plan a change that moves nothing."""
        return with_predicted_time(self.name, cluster, Plan(notes=(self.effect(spec), *notes)))

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        """Return whether a running tier is not yet as the change wants it."""
        return has_wrong_number(tier, now, aim, cluster)

    def destinations(self, spec: ChangeSpec, tier: TierName) -> Mapping[int, HostName]:
        """Return the hosts of single workers that move alone, by the worker's number.

        A worker is known by its number in the incarnation, so that the wish holds for every later
        incarnation, too. An empty mapping: the planner chooses the hosts of the tier.
        """
        return {}

    def fixed_placement(self, spec: ChangeSpec, tier: TierName, now: Placement) -> Placement | None:
        """Return exactly where the next incarnation of a tier has to run.

        `now` is the placement of its owner. Return None if the planner chooses the hosts.
        """
        to = self.destinations(spec, tier)
        if not to:
            return None
        slots = tuple(to.get(number, host) for number, host in enumerate(now.slots))
        return now.model_copy(update={"slots": slots})

    def unmoved(self, spec: ChangeSpec, tier: TierName, now: Placement) -> Iterable[str]:
        """Return, for the checker, the single workers that are not at their hosts."""
        for number, to in self.destinations(spec, tier).items():
            if number < len(now.slots) and now.slots[number] != to:
                yield f"has its worker {number} on {now.slots[number]}, not on {to}"

    def remarks(self, spec: ChangeSpec, cluster: Cluster, moves: Iterable[Move]) -> Iterable[str]:
        """Return notes on the planned moves."""
        return []

    def layers(self, spec: ChangeSpec, cluster: Cluster, by: str, now: float) -> Layers:
        """Return the layers after the change, made by `by` at the epoch seconds `now`."""
        return cluster.rules.layers

    def reduced_to(self, spec: ChangeSpec) -> int | None:
        """Return the workers that the tier keeps to make room for another tier's minimum.

        Return None if the change is for something else.
        """
        return None

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        """Return, for the checker, how a running tier differs from what the change wants.

        Each text continues a sentence that begins with the tier's name.
        """
        return check.miscounted()


class MovesWorkers(Kind):
    """A kind that moves the single workers which its spec names in `moving`."""

    def destinations(self, spec: ChangeSpec, tier: TierName) -> Mapping[int, HostName]:
        return {move.worker: move.to for move in spec.moving if move.tier == tier}

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        return self.fixed_placement(spec, tier.spec.name, now) not in {None, now}

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        return self.unmoved(spec, tier.spec.name, now)


def has_wrong_number(tier: TierNow, now: Placement, aim: Target, cluster: Cluster) -> bool:
    """Return whether a tier's number of slots is none of the right numbers.

    A tier that is light no more has no workers until its next incarnation.
    """
    return (
        not tier.awaits_upgrade
        and len(now.slots) not in right_numbers(now, aim, cluster.hosts)
        and not _waits_for_spares(tier, now, aim, cluster)
    )


def has_another_number(tier: TierNow, now: Placement, aim: Target, cluster: Cluster) -> bool:
    """Return whether a tier has not the preferred number of slots.

    A tier that is light no more has no workers until its next incarnation.
    """
    return (
        not tier.awaits_upgrade
        and len(now.slots) != right_numbers(now, aim, cluster.hosts)[0]
        and not _waits_for_spares(tier, now, aim, cluster)
    )


def _waits_for_spares(tier: TierNow, now: Placement, aim: Target, cluster: Cluster) -> bool:
    """Return whether a tier lacks only spares, and can get them only by a handover.

    No tier is handed over for that alone: it gets them at its next handover.
    """
    return lacks_only_spares(now, aim, cluster.hosts) and not joins_in_place(tier, aim, cluster)


def with_predicted_time(kind: str, cluster: Cluster, planned: Plan) -> Plan:
    """Return the plan with the median time of the last changes of this kind."""
    seconds, unknown = cluster.pace.rest.get(kind, 0.0), cluster.pace.unknown(kind)
    return planned.model_copy(update={"predicted_seconds": seconds, "unpredicted": unknown})
