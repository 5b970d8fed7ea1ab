"""One incarnation of a tier, from its record in the channel to its end."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from sluice import releases, schema_registry
from sluice.api import declarations
from sluice.dependencies.environment import Environment
from sluice.driver.control.control_channel import ChannelFollower
from sluice.driver.counters import Flow
from sluice.driver.process.driver_metrics import DriverMetrics
from sluice.driver.spark.jvm import Jvm
from sluice.failures import error_text
from sluice_ops.channel.client import Channel
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import label_of, slot_ids
from sluice_ops.model.exporter import Exporter
from sluice_ops.model.incarnation import Directive, IncarnationSpec, State
from sluice_ops.model.kafka_access import User
from sluice_ops.model.release import Release
from sluice_ops.model.tier import Mode, TierSpec
from sluice_ops.process import metrics_server
from sluice_ops.process.logs import configure_logs
from sluice_ops.site import endpoints, project, site_file

if TYPE_CHECKING:
    from sluice.kafka.reader import Streams

log = structlog.get_logger()


def run(tier: str, number: int, jvm: Jvm) -> int:
    """Run incarnation `number` of `tier` until the owner record says exit; return the process's
    exit code.
    """
    configure_logs()
    structlog.contextvars.bind_contextvars(tier=tier, incarnation=number)
    leaving: list[int] = []
    where = endpoints.load()
    channel = Channel(where.zookeeper, where.required_credential(Role.DRIVER))
    follower = ChannelFollower(channel, tier, number, leaving=lambda: bool(leaving))

    def leave(signal_number: int, _frame: object) -> None:
        leaving.append(signal_number)
        follower.wake()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    records = follower.wait_for_start()
    if records is None:
        return 0
    flow = _export(channel, follower, records[1])
    code = _run(follower, where, *records, jvm, flow)
    channel.stop()
    return code


def _export(channel: Channel, follower: ChannelFollower, incarnation: IncarnationSpec) -> Flow:
    """Serve the driver's metrics from now on; return their counters."""
    flow, host = Flow(), incarnation.placement.driver
    exporter = Exporter(
        role=Role.DRIVER,
        address=f"{_address()}:0",
        host=host,
        tier=incarnation.tier,
        incarnation=incarnation.incarnation,
    )
    metrics_server.serve(channel, exporter, DriverMetrics(follower, flow))
    return flow


def _address() -> str:
    """Return the address of this host."""
    return os.environ.get("SLUICE_HOST_ADDRESS", "127.0.0.1")


def _run(  # noqa: PLR0913, PLR0917 — the parts of one incarnation
    follower: ChannelFollower,
    where: endpoints.Endpoints,
    spec: TierSpec,
    incarnation: IncarnationSpec,
    release: Release | None,
    jvm: Jvm,
    flow: Flow,
) -> int:
    if follower.directive() is Directive.EXIT:
        follower.enter(State.STOPPED)
        return 0
    follower.note()
    begun = time.monotonic()
    try:
        loaded = _load(where.home, incarnation.release, release)
        pipeline = schema_registry.with_ids(
            loaded.pipeline,
            {} if release is None else release.schemas,
            _site().schema_registry,
        )
        # the sizes come from the newest release, everything else from the incarnation's own release
        sizes = {"quantum": spec.quantum, "driver": spec.driver, "light": not incarnation.placement.slots}
        tier_spec = pipeline.spec(spec.name).model_copy(update=sizes)
        code = _Code(release, pipeline.tier(spec.name), loaded.environment)
        return _serve(follower, where, tier_spec, incarnation, code, jvm, flow, begun)
    except Exception as error:
        log.exception("the incarnation failed before it could run")
        follower.enter(State.FAILED, error=error_text(error))
        return 1


@dataclass(frozen=True)
class _Code:
    """The code that an incarnation runs."""

    release: Release | None
    tier: declarations.Tier
    environment: Environment | None


def _load(home: Path, name: str | None, release: Release | None) -> releases.Loaded:
    """Import the release's code, as the channel describes it; without a name, the code of this
    host's checkout.
    """
    if name is None:
        return releases.Loaded(declarations.load(_site().pipeline))
    return releases.load(home, name, release)


def _site() -> site_file.Site:
    return site_file.load(project.site_path())


def _serve(  # noqa: PLR0913, PLR0917 — the parts of one incarnation
    follower: ChannelFollower,
    where: endpoints.Endpoints,
    spec: TierSpec,
    incarnation: IncarnationSpec,
    code: _Code,
    jvm: Jvm,
    flow: Flow,
    begun: float,
) -> int:
    # imported here: Spark takes a second, which a driver that must exit should not wait for
    from sluice.checks.operators import check_tier  # noqa: PLC0415
    from sluice.driver.control.write_fence import ControlTopic  # noqa: PLC0415
    from sluice.driver.engine.factory import create_engine  # noqa: PLC0415
    from sluice.driver.engine.settings import EngineConfig  # noqa: PLC0415
    from sluice.driver.process.heartbeat import Pulse  # noqa: PLC0415
    from sluice.driver.process.life import Life  # noqa: PLC0415
    from sluice.driver.process.progress_report import Progress  # noqa: PLC0415
    from sluice.driver.spark.session import (  # noqa: PLC0415
        is_stopped,
        master_of,
        open_session,
        settings,
        wait_for_executors,
    )
    from sluice.driver.spark.workers import NoWorkers, Workers, refuse_too_few  # noqa: PLC0415
    from sluice.driver.state.checkpoint_store import depot_of  # noqa: PLC0415
    from sluice.driver.state.hook_state import InternalStates  # noqa: PLC0415
    from sluice.kafka.reader import Streams  # noqa: PLC0415
    from sluice.kafka.stream_identity import Identities  # noqa: PLC0415

    kafka, declared, release = where.kafka_as(User.DRIVER), code.tier, code.release
    streams = Streams(kafka)
    if not _wait_for_kafka(follower, streams, spec.inputs):
        follower.enter(State.STOPPED)
        return 0
    slots, label = len(incarnation.placement.slots), label_of(spec.name, incarnation.incarnation)
    threads = spec.driver.threads if spec.light else spec.quantum.threads
    if spec.mode is Mode.REALTIME:
        partitions = sum(streams.partitions(stream) for stream in spec.inputs)
        refuse_too_few(spec.name, partitions, None if spec.light else slots, threads)
    site = _site()
    depot = depot_of(spec.name, site, where.home)
    chosen = {
        **declared.spark,
        **settings(spec, incarnation, _address(), where.home),
        **depot.session,
        **where.spark_settings,
    }
    session = open_session(master_of(spec, where.spark), chosen, jvm, code.environment)
    session.sparkContext.setLogLevel("WARN")
    try:
        log.info("the Spark session is open", seconds=round(time.monotonic() - begun, 1))
        workers = (NoWorkers if spec.light else Workers)(
            session,
            frozenset(slot_ids(spec.name, incarnation.incarnation, slots)),
            label,
            threads,
            rests_between_batches=spec.mode is not Mode.REALTIME,
        )
        config = EngineConfig(
            session=session,
            tier=declared,
            incarnation=incarnation.incarnation,
            streams=streams,
            kafka=kafka,
            postgres=where.postgres_as(Role.DRIVER),
            home=where.home,
            hops_to_end=spec.distance,
            one_for_one=check_tier(session, declared),
            partitions=incarnation.partitions,
            release=incarnation.release,
            packed_lineage=follower.packs_lineage(site),
            holds=None if release is None else releases.state_of(release, spec.name),
            savepoint=incarnation.savepoint,
            depot=depot,
            s3=site.s3,
            workers=workers,
            flow=flow,
            identities=Identities(kafka),
            writers=ControlTopic(kafka, spec.name, follower),
        )
        engine = create_engine(config, follower)
        engine.plan()
        log.info("the query is planned", seconds=round(time.monotonic() - begun, 1))
        if not spec.light:
            wait_for_executors(session, slots, label)
        log.info("all executors have come", seconds=round(time.monotonic() - begun, 1), count=slots)
        progress = Progress(config, engine, follower.start_offsets, follower.report_load)
        progress.start()
        pulse = Pulse(lambda: is_stopped(session))
        pulse.start()
        exit_code = Life(
            follower,
            engine,
            InternalStates(config.checkpoints / "internal", declared.hooks),
            flow,
            workers,
            pulse,
        ).live()
        pulse.stop()
        progress.stop()
        _clean_up(engine.close)
    finally:
        _clean_up(session.stop)
        log.info("the incarnation has ended", seconds=round(time.monotonic() - begun, 1))
    return exit_code


def _wait_for_kafka(follower: ChannelFollower, streams: "Streams", inputs: tuple[str, ...]) -> bool:
    """Wait until Kafka answers; return False if the owner record says exit before."""
    from sluice.driver.control.wait_for_services import RETRY_SECONDS, ServiceWait  # noqa: PLC0415

    kafka = ServiceWait(follower)
    while not kafka.done(lambda: [streams.partitions(stream) for stream in inputs]):
        follower.wait(RETRY_SECONDS)
        if follower.directive() is Directive.EXIT:
            return False
    return True


def _clean_up(action: Callable[[], None]) -> None:
    """Do the action; an error is only logged, because the incarnation's end is reported already."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 — a JVM that is gone fails in many ways
        log.warning("the driver could not clean up everything at its end", error=error_text(error))
