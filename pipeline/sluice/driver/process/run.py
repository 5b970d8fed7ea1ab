"""One incarnation of a tier, from its record in the channel to its end."""

import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from sluice import releases
from sluice.api import declarations
from sluice.driver.control.control_channel import Follow
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
from sluice_ops.site import endpoints, site_file

if TYPE_CHECKING:
    from sluice.kafka.reader import Streams

log = structlog.get_logger()


def run(tier: str, number: int, jvm: Jvm) -> int:
    """Run incarnation `number` of `tier` until it is told to exit; the exit code tells how it ended."""
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    # one line for each event, and no values of variables: they hold passwords
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ]
    )
    structlog.contextvars.bind_contextvars(tier=tier, incarnation=number)
    leaving: list[int] = []
    where = endpoints.load()
    channel = Channel(where.zookeeper, where.required_credential(Role.DRIVER))
    follow = Follow(channel, tier, number, leaving=lambda: bool(leaving))

    def leave(signal_number: int, _frame: object) -> None:
        leaving.append(signal_number)
        follow.wake()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    found = follow.wait_for_start()
    if found is None:
        return 0
    flow = _export(channel, follow, found[1])
    code = _run(follow, where, *found, jvm, flow)
    channel.stop()
    return code


def _export(channel: Channel, follow: Follow, incarnation: IncarnationSpec) -> Flow:
    """Serve the driver's figures from now on; return where they are counted."""
    flow, host = Flow(), incarnation.placement.driver
    exporter = Exporter(
        role=Role.DRIVER,
        address=f"{_address()}:0",
        host=host,
        tier=incarnation.tier,
        incarnation=incarnation.incarnation,
    )
    metrics_server.serve(channel, exporter, DriverMetrics(follow, flow))
    return flow


def _address() -> str:
    """Return where this host is reached."""
    return os.environ.get("SLUICE_HOST_ADDRESS", "127.0.0.1")


def _run(  # noqa: PLR0913, PLR0917 — what one incarnation is
    follow: Follow,
    where: endpoints.Endpoints,
    spec: TierSpec,
    incarnation: IncarnationSpec,
    release: Release | None,
    jvm: Jvm,
    flow: Flow,
) -> int:
    if follow.told() is Directive.EXIT:
        follow.enter(State.STOPPED)
        return 0
    follow.note()
    begun = time.monotonic()
    try:
        pipeline = _load(where.home, incarnation.release, release)
        # what is published last says how large it is; all else is as its own release has it
        mine = pipeline.spec(spec.name).model_copy(update={"quantum": spec.quantum, "driver": spec.driver})
        return _serve(follow, where, mine, incarnation, release, pipeline.tier(spec.name), jvm, flow, begun)
    except Exception as error:
        log.exception("failed before it could run")
        follow.enter(State.FAILED, error=error_text(error))
        return 1


def _load(home: Path, name: str | None, release: Release | None) -> declarations.Pipeline:
    """Import the code that the incarnation runs, which the channel knows as `release`; without a name, what this host's checkout has."""
    if name is None:
        return declarations.load(_site().pipeline)
    return releases.load(home, name, release)


def _site() -> site_file.Site:
    return site_file.load(Path(os.environ.get("SLUICE_SITE", "site.yaml")))


def _serve(  # noqa: PLR0913, PLR0917 — what one incarnation is
    follow: Follow,
    where: endpoints.Endpoints,
    spec: TierSpec,
    incarnation: IncarnationSpec,
    release: Release | None,
    declared: declarations.Tier,
    jvm: Jvm,
    flow: Flow,
    begun: float,
) -> int:
    # imported here: Spark takes a second, and a driver that is not wanted should not wait for it
    from sluice.checks.operators import check_tier  # noqa: PLC0415
    from sluice.driver.control.write_fence import ControlTopic  # noqa: PLC0415
    from sluice.driver.engine.factory import create_engine  # noqa: PLC0415
    from sluice.driver.engine.settings import EngineConfig  # noqa: PLC0415
    from sluice.driver.process.heartbeat import Pulse  # noqa: PLC0415
    from sluice.driver.process.life import Life  # noqa: PLC0415
    from sluice.driver.process.progress_report import Progress  # noqa: PLC0415
    from sluice.driver.spark.session import is_stopped, open_session, settings, wait_for_executors  # noqa: PLC0415
    from sluice.driver.spark.workers import Workers, refuse_too_few  # noqa: PLC0415
    from sluice.driver.state.checkpoint_store import depot_of  # noqa: PLC0415
    from sluice.driver.state.hook_state import InternalStates  # noqa: PLC0415
    from sluice.kafka.reader import Streams  # noqa: PLC0415
    from sluice.kafka.stream_identity import Identities  # noqa: PLC0415

    kafka = where.kafka_as(User.DRIVER)
    streams = Streams(kafka)
    if not _answer(follow, streams, spec.inputs):
        follow.enter(State.STOPPED)
        return 0
    slots, label = len(incarnation.placement.slots), label_of(spec.name, incarnation.incarnation)
    if spec.mode is Mode.REALTIME:
        refuse_too_few(
            spec.name, sum(streams.partitions(stream) for stream in spec.inputs), slots, spec.quantum.threads
        )
    depot = depot_of(spec.name, _site(), where.home)
    chosen = settings(spec, incarnation, _address(), where.home) | depot.session | where.spark_settings
    session = open_session(where.spark, chosen, jvm)
    session.sparkContext.setLogLevel("WARN")
    try:
        log.info("session", seconds=round(time.monotonic() - begun, 1))
        workers = Workers(
            session,
            frozenset(slot_ids(spec.name, incarnation.incarnation, slots)),
            label,
            spec.quantum.threads,
        )
        config = EngineConfig(
            session=session,
            tier=declared,
            incarnation=incarnation.incarnation,
            streams=streams,
            kafka=kafka,
            postgres=where.postgres_as(Role.DRIVER),
            home=where.home,
            distance=spec.distance,
            one_for_one=check_tier(session, declared),
            partitions=incarnation.partitions,
            release=incarnation.release,
            holds=None if release is None else releases.state_of(release, spec.name),
            depot=depot,
            workers=workers,
            flow=flow,
            identities=Identities(kafka),
            writers=ControlTopic(kafka, spec.name, follow),
        )
        engine = create_engine(config, follow)
        engine.rehearse()
        log.info("rehearsed", seconds=round(time.monotonic() - begun, 1))
        wait_for_executors(session, slots, label)
        log.info("executors", seconds=round(time.monotonic() - begun, 1), count=slots)
        progress = Progress(config, engine, follow.began)
        progress.start()
        pulse = Pulse(lambda: is_stopped(session))
        pulse.start()
        code = Life(
            follow,
            engine,
            InternalStates(config.checkpoints / "internal", declared.hooks),
            flow,
            workers,
            pulse,
        ).live()
        pulse.stop()
        progress.stop()
        _finish(engine.close)
    finally:
        _finish(session.stop)
        log.info("ended", seconds=round(time.monotonic() - begun, 1))
    return code


def _answer(follow: Follow, streams: "Streams", inputs: tuple[str, ...]) -> bool:
    """Wait until Kafka answers; tell whether it did before this incarnation was told to exit."""
    from sluice.driver.control.wait_for_services import AGAIN_SECONDS, Patience  # noqa: PLC0415

    patience = Patience(follow)
    while not patience.done(lambda: [streams.partitions(stream) for stream in inputs]):
        follow.wait(AGAIN_SECONDS)
        if follow.told() is Directive.EXIT:
            return False
    return True


def _finish(act: Callable[[], None]) -> None:
    """Tidy up; how the incarnation ended is reported already, and what goes wrong now does not change it."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 — a JVM that is gone fails in many ways
        log.warning("not everything could be tidied up", error=error_text(error))
