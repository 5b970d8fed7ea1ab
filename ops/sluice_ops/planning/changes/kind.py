"""The interface of a kind of change: its form, steps, effect and rules. `kinds` implements it, one module a kind.

The command line, Airflow's forms and runbooks, the planner, the checker and the controller ask the kind.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol

from sluice_ops.model.change import ChangeSpec, Move, Plan, Step
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer, Layers
from sluice_ops.planning.placement.cluster import Cluster, Host, Rules, TierNow
from sluice_ops.planning.placement.drift import numbers
from sluice_ops.planning.placement.shares import Target

MOVE_STEPS = (Step.PREFLIGHT, Step.PREPARE, Step.CUT, Step.VERIFY, Step.RELEASE)


class Input(StrEnum):
    """The type of a field: it decides the widget of the form and the type on the command line."""

    HOST = "host"
    TIER = "tier"
    TENANT = "tenant"
    """A tier, or `batch`."""
    PLACE = "place"
    """A host's name, `zone:…`, `rack:…` or `label:…`."""
    COUNT = "count"
    AMOUNT = "amount"
    """A number of slots, or per cent of the cluster."""
    RELEASE = "release"
    SHIFT = "shift"
    LAYER = "layer"
    TIME = "time"
    """A duration or a time of day."""
    WORKERS = "workers"


@dataclass(frozen=True)
class Field:
    """One field of a change that people fill in."""

    name: str
    """The field of `ChangeSpec`."""
    input: Input
    help: str
    required: bool = True
    option: bool = False
    """On the command line: `--name` instead of a word by its position."""
    default: int | None = None


HOST = Field("host", Input.HOST, "The host's name, as `sluice hosts` lists it.")
TIER = Field("tier", Input.TIER, "The tier's name, as `sluice tiers` lists it.")
ANY_TIER = Field("tier", Input.TIER, "The tier's name; without it, all tiers.", required=False)


class TierCheck(Protocol):
    """The findings of the checker on one running tier, which it makes without the planner."""

    @property
    def on_burst_hosts(self) -> Iterable[str]:
        """Say on which burst hosts the tier is that it has to leave."""

    @property
    def minimum_is_lacking(self) -> bool:
        """Whether any tier of the pipeline has fewer slots than its minimum."""

    def breaches(self) -> Iterable[str]:
        """Say which of the rules that always hold the tier breaks."""

    def displaced(self, *, gone: bool = False) -> Iterable[str]:
        """Say what of the tier is not where it has to be."""

    def miscounted(self, *, exactly: bool = False) -> Iterable[str]:
        """Say how the number of slots is wrong."""


class Kind:
    """One kind of change. A subclass sets the attributes, and overrides what differs from these defaults."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """The first sentence of the command's help and of the runbook's page."""
    details: ClassVar[str] = ""
    example: ClassVar[str]
    steps: ClassVar[tuple[Step, ...]] = MOVE_STEPS
    """In order. The last one ends the change and gives the maintenance lock back."""
    fields: ClassVar[tuple[Field, ...]] = ()
    runbook: ClassVar[str] = ""
    """The runbook's DAG that is made from this kind; empty where a DAG file carries it out, or none does."""
    command: ClassVar[bool] = True
    """Whether the command line has a command of this name."""
    layer: ClassVar[Layer] = Layer.PERSON
    """The layer that the change speaks for unless its spec names another."""

    own: ClassVar[bool] = False
    """Whether only the controller posts changes of this kind, and people do not."""
    exact: ClassVar[bool] = False
    """Whether the planner refuses the whole change when one of its moves finds no room."""
    forced: ClassVar[bool] = False
    """Whether tiers must leave their hosts, even if they get fewer slots elsewhere."""
    may_wait: ClassVar[bool] = False
    """Whether a tier that finds no room may stay as it is; the plan then has a note."""
    resizes: ClassVar[bool] = False
    """Whether the change is about numbers alone, so that a tier may let workers go where it runs."""
    empties_host: ClassVar[bool] = False
    empties_burst_hosts: ClassVar[bool] = False
    launches: ClassVar[bool] = False
    """Whether instances are launched before the first step."""
    repairs: ClassVar[bool] = False
    sets_tier: ClassVar[bool] = False
    """Whether the release step makes what the new incarnation was begun with hold for every later one."""
    waits_for_lock: ClassVar[bool] = False
    """Whether the change waits for another one to end, instead of being refused."""
    unpredicted: ClassVar[str] = ""
    """The part of its time that is unknown until a change of this kind was timed here."""

    @property
    def moves(self) -> bool:
        """Whether the change starts new incarnations, or has tiers let workers go."""
        return Step.CUT in self.steps

    @property
    def planned_only(self) -> bool:
        """Whether the kind is only planned: `config/wanted` carries it out."""
        return self.steps == (Step.PREFLIGHT,)

    def is_of_all(self, spec: ChangeSpec) -> bool:
        """Tell whether the change is of every tier, though it moves none."""
        return False

    def complete(self, spec: ChangeSpec, tier_release: str | None) -> ChangeSpec:
        """Return the spec with what preflight fills in; `tier_release` is the release that was published last for its tier."""
        return spec

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        """Raise RefusedError for what is unknown or impossible; return notes on the rest."""
        return []

    def refuse_late(self, spec: ChangeSpec, now: float) -> None:
        """Raise RefusedError for a time that is past."""

    def effect(self, spec: ChangeSpec) -> str:
        """Say what a change does that moves nothing."""
        return f"{self.name} {spec.host or spec.tier or ''}".strip()

    def plan(self, spec: ChangeSpec, cluster: Cluster, notes: Iterable[str]) -> Plan:
        """Plan a change that moves nothing."""
        return with_predicted_time(self.name, cluster, Plan(notes=(self.effect(spec), *notes)))

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        """Tell whether a tier that runs is not yet as the change wants it."""
        return has_wrong_number(now, aim, cluster)

    def remarks(self, spec: ChangeSpec, cluster: Cluster, moves: Iterable[Move]) -> Iterable[str]:
        """Return notes on the moves that were planned."""
        return []

    def layers(self, spec: ChangeSpec, rules: Rules, by: str, now: float, hosts: Iterable[Host]) -> Layers:
        """Return the layers once the change is through."""
        return rules.layers

    def gives_up(self, spec: ChangeSpec) -> int | None:
        """Return with how many workers the tier goes on that makes room for another tier's minimum."""
        return None

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        """Say, for the checker, what of a tier that runs is not as the change wants it."""
        return check.miscounted()


def has_wrong_number(now: Placement, aim: Target, cluster: Cluster) -> bool:
    """Tell whether a tier has another number of slots than any that it may have."""
    return len(now.slots) not in numbers(now, aim, cluster.hosts)


def with_predicted_time(kind: str, cluster: Cluster, planned: Plan) -> Plan:
    """Add the time that the last changes of this kind took."""
    seconds, unknown = cluster.pace.rest.get(kind, 0.0), cluster.pace.unknown(kind)
    return planned.model_copy(update={"predicted_seconds": seconds, "unpredicted": unknown})
