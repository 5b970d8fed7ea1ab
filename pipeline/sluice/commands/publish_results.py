"""The results of `sluice publish`, as lines for people and as JSON for scripts. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class BuiltEnvironment:
    """The packages and jars in a release, beyond those of Sluice."""

    packages: dict[str, str]
    jars: list[str]
    bytes: int
    seconds: float | None
    """How long the build took; None: an earlier run has built it."""

    def line(self) -> str:
        names = [*(f"{name} {version}" for name, version in self.packages.items()), *self.jars]
        took = "built before" if self.seconds is None else f"built in {self.seconds:.1f} s"
        return f"environment: {', '.join(names)}; {self.bytes / 1e6:.1f} MB, {took}"


@dataclass(frozen=True)
class Checked:
    """What `--check` found."""

    pipeline: str
    valid: list[str]
    """The tiers that are valid."""
    invalid: dict[str, str]
    """Tier → the reason."""
    declared_only: bool
    notes: list[str]
    environment: BuiltEnvironment | None = None

    def lines(self) -> Iterable[str]:
        if self.declared_only:
            yield f"{self.pipeline}: valid declarations: {', '.join(self.valid)}"
        else:
            yield from (f'tier "{tier}": valid' for tier in self.valid)
        if self.environment is not None:
            yield self.environment.line()
        yield from self.notes


@dataclass(frozen=True)
class Preview:
    """What publishing would change."""

    pipeline: str
    new_tiers: list[str]
    published_before: list[str]
    new_streams: list[str]
    new_tables: list[str]
    release: str | None
    """The release with this code; None: publishing makes a new one."""
    would_stop: list[str]
    would_replace: dict[str, str]
    """Tier → the other pipeline that published it."""
    environment: BuiltEnvironment | None = None

    def lines(self) -> Iterable[str]:
        yield f"dry run, nothing was written: {self.pipeline}"
        before = ", ".join(self.published_before) or "none"
        yield f"new tiers: {', '.join(self.new_tiers) or 'none'}; published before: {before}"
        yield f"new streams: {', '.join(self.new_streams) or 'none'}"
        if self.new_tables:
            yield f"new tables: {', '.join(self.new_tables)}"
        code = f"{self.release}, the code is unchanged" if self.release else "a new one, the code has changed"
        yield f"release: {code}"
        if self.environment is not None:
            yield self.environment.line()
        yes = "; publishing needs --yes" if self.would_stop else ""
        yield f"tiers that would stop: {', '.join(self.would_stop) or 'none'}{yes}"
        if self.would_replace:
            yield (
                f"tiers of another pipeline that would be replaced: {published_from(self.would_replace)}; "
                "publishing needs --yes"
            )


@dataclass(frozen=True)
class Published:
    """What publishing did."""

    pipeline: str
    tiers: list[str]
    tables: list[str]
    new_streams: list[str]
    release: str
    is_new: bool
    """False: the code is unchanged, so the release is an earlier one."""
    other_releases_run_in: list[str]
    """Tiers that run another release until `sluice upgrade`."""
    stopped: list[str]
    """Tiers that are no longer declared."""
    notes: list[str]
    """What publishing did to streams and rights."""
    unmatched_places: list[str]
    environment: BuiltEnvironment | None = None

    def lines(self) -> Iterable[str]:
        new_streams = ", ".join(self.new_streams) or "none"
        yield (
            f"{self.pipeline}: tiers {', '.join(self.tiers)}; tables {', '.join(self.tables)}; "
            f"new streams: {new_streams}"
        )
        yield f"release {self.release}{' is new' if self.is_new else ': the code is unchanged'}"
        if self.environment is not None:
            yield self.environment.line()
        yield from self.notes
        if self.other_releases_run_in:
            yield (
                f"other releases run in {', '.join(self.other_releases_run_in)}; "
                "hand a tier over to this release with `sluice upgrade TIER`"
            )
        if self.stopped:
            yield (
                f"stopped, because no longer declared: {', '.join(self.stopped)}; "
                "streams, tables and checkpoints remain"
            )
        yield from self.unmatched_places


def published_from(others: dict[str, str]) -> str:
    """Name each tier with the pipeline that published it."""
    return ", ".join(f"{tier} (published from {module})" for tier, module in others.items())
