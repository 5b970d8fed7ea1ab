"""Validates a pipeline: runs every tier's transform on an empty DataFrame in a small local Spark,
so that publishing refuses everything that a driver would refuse.

`sluice.commands.publish` calls this module. A start of the platform runs `python -m
sluice.commands.validation` while the services start that publishing needs. The home keeps the
digest of valid code, so publishing the same code does not validate the code again.
"""

import hashlib
import json
import logging
import os
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import sluice
from sluice import releases
from sluice.api.declarations import DeclarationError, Tier
from sluice.checks.shapes import shape
from sluice.dependencies.environment import Environment
from sluice_ops.site import endpoints, project, site_file
from sluice_ops.site.installation import INSTALL_AGENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.driver.spark.jvm import Jvm

FAILED = 1
HEAP = 512
"""The heap of the JVM that plans the transforms. Unit: MiB."""
END_SECONDS = 30.0
MAX_QUOTED = 300
"""The longest quotation of a JVM's last line. Unit: characters."""
REPEATING_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Spark's loggers that repeat an error of a query as JSON of several kilobytes."""
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.app.name": "sluice validation",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
}
"""Settings that plans depend on have the values of a driver's session."""


class UncheckedError(Exception):
    """Spark does not run here, so nothing was validated; the message names the correction."""


@dataclass(frozen=True)
class Validation:
    """The result of a validation."""

    errors: Mapping[str, str]
    """The error of each invalid tier."""
    state_operators: Mapping[str, tuple[str, ...]]
    """The stateful operators of each valid tier with state."""

    def sentences(self) -> list[str]:
        """Return one sentence for each invalid tier."""
        return [f'tier "{name}": {error}' for name, error in self.errors.items()]


def main() -> int:
    """Validate new code, and keep its digest if it is valid; return the exit code."""
    try:
        settings = site_file.load(project.site_path())
        if is_known(home(), settings.pipeline):
            sys.stdout.write(f"{settings.pipeline}: this code is already a release or validated\n")
            return 0
        result = validate(releases.load_current(settings.pipeline), home(), settings.pipeline)
    except (site_file.SiteError, DeclarationError, UncheckedError) as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    if not result.errors:
        return 0
    advice = "nothing was published; correct these tiers, then start again"
    sys.stderr.writelines(f"{sentence}\n" for sentence in [*result.sentences(), advice])
    return FAILED


def home() -> Path:
    """Return the folder that all hosts share, or this installation's if no endpoints file
    exists.
    """
    try:
        return endpoints.load().home
    except (FileNotFoundError, endpoints.EndpointsError):
        return project.home()


def is_known(shared: Path, module: str) -> bool:
    """Tell whether the current code is a release or has passed a validation."""
    return releases.of_current_code(shared, module) is not None or cached(shared, module) is not None


def validate(current: releases.Loaded, shared: Path, module: str) -> Validation:
    """Validate every tier, and cache the result if all tiers are valid.

    Raise UncheckedError if Spark does not run here.
    """
    digest, errors, operators = _digest(module), dict[str, str](), dict[str, tuple[str, ...]]()
    with _session(shared, current.environment) as session:
        for tier in current.pipeline.tiers:
            try:
                operators[tier.name] = validate_tier(session, tier)
            except DeclarationError as error:
                errors[tier.name] = str(error).removeprefix(f'tier "{tier.name}": ')
    result = Validation(errors, {name: names for name, names in operators.items() if names})
    if not errors:
        _cache(shared, digest, result)
    return result


def cached(shared: Path, module: str) -> Validation | None:
    """Return the last result without errors, if it belongs to this code and this Sluice."""
    try:
        content = json.loads(_cache_file(shared).read_text())
        if content["mark"] == _digest(module):
            return Validation({}, {name: tuple(operators) for name, operators in content["holds"].items()})
    except (OSError, ValueError, KeyError):
        pass  # without a usable file, the caller validates again
    return None


def _cache(shared: Path, digest: str, result: Validation) -> None:
    """Keep a result in the home. A fresh checkout has no home, and a validation makes none."""
    partial = _cache_file(shared).with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        partial.write_text(json.dumps({"mark": digest, "holds": result.state_operators}))
        partial.replace(_cache_file(shared))


def _cache_file(shared: Path) -> Path:
    return shared / "validated.json"


def _digest(module: str) -> str:
    """Return a digest of the pipeline's code and of Sluice, which validates the code."""
    parts = (
        module,
        releases.current_digest(module),
        releases.digest(Path(sluice.__file__).parent),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def validate_tier(session: "SparkSession", tier: Tier) -> tuple[str, ...]:
    """Return the stateful operators of a tier.

    Raise DeclarationError if a driver would refuse the transform, or if the transform fails.
    """
    # imports of Spark are slow, and known code needs none
    from sluice.checks import refusals  # noqa: PLC0415
    from sluice.checks.chosen_settings import with_settings_of  # noqa: PLC0415
    from sluice.checks.operators import check_tier  # noqa: PLC0415
    from sluice.checks.state_plans import state_operators  # noqa: PLC0415
    from sluice.failures import error_text  # noqa: PLC0415

    subject = f'tier "{tier.name}": '
    try:
        shape(tier, ())  # refuses columns that cannot be parsed
        with with_settings_of(tier, session):
            check_tier(session, tier)
            return state_operators(session, tier) if tier.state is not None else ()
    except DeclarationError as error:
        message = str(error) if str(error).startswith(subject) else f"{subject}{error}"
        raise DeclarationError(message) from error
    except Exception as error:
        reason = refusals.of_spark(error_text(error))
        message = f"{subject}the transform fails at {_location(error)}: {reason}"
        raise DeclarationError(message) from error


def _location(error: Exception) -> str:
    """Return the failing file and line: the author's, or else Sluice's that called Spark."""
    lines = [
        line
        for line in traceback.extract_tb(error.__traceback__)
        if not {"pyspark", "py4j"} & {*Path(line.filename).parts}
    ]
    line = next((line for line in reversed(lines) if _is_authors(Path(line.filename))), lines[-1])
    return f"{line.filename}:{line.lineno}"


def _is_authors(path: Path) -> bool:
    """Tell whether a file is neither Sluice's nor one of Python's own."""
    is_installed = bool({"site-packages", "dist-packages"} & {*path.parts})
    is_pythons = path.is_relative_to(sysconfig.get_path("stdlib")) and not is_installed
    return not is_pythons and not path.is_relative_to(Path(sluice.__file__).parent)


@contextmanager
def _session(shared: Path, environment: Environment | None) -> Iterator["SparkSession"]:
    """Open a session in its own JVM, which ends with the session.

    Raise UncheckedError, with the JVM's last line, if the JVM does not start or ends early.
    """
    with tempfile.TemporaryFile() as output:
        try:
            from sluice.driver.spark.jvm import JvmError, launch  # noqa: PLC0415 — as above
            from sluice.driver.spark.session import open_session  # noqa: PLC0415

            process = launch(HEAP, shared, says=output)
        except (ImportError, OSError, RuntimeError) as error:  # no Java, or no Spark
            raise UncheckedError(_spark_missing(str(error))) from error
        before = use_gateway(None)
        try:
            try:
                session = open_session("local[1]", SETTINGS, process, environment)
            except Exception as error:
                line = _last_line(output) if isinstance(error, JvmError) else ""
                raise UncheckedError(_spark_missing(line or str(error))) from error
            session.sparkContext.setLogLevel("ERROR")
            silence_repeating_loggers()
            try:
                yield session
            finally:
                ended = process.process.poll() is not None
                with suppress(Exception):  # the JVM may be dead
                    session.stop()
                    session.sparkContext._gateway.shutdown()  # noqa: SLF001 — no public API
            if ended:
                message = (
                    f"Spark's JVM ended during the validation ({_last_line(output)}), "
                    "so the tiers are not validated; free memory, then try again"
                )
                raise UncheckedError(message)
        finally:
            use_gateway(before)
            _end(process)


def silence_repeating_loggers() -> None:
    """Keep Spark from logging an error of a query as JSON, beside the exception."""
    for name in REPEATING_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def use_gateway(gateway: Any) -> Any:
    """Make PySpark, which knows one JVM per process, use this gateway; return the previous gateway.

    With None, PySpark uses the gateway of the next session.
    """
    from pyspark import SparkContext  # noqa: PLC0415 — as above

    before = SparkContext._gateway  # noqa: SLF001 — no public API
    SparkContext._gateway = gateway  # noqa: SLF001
    SparkContext._jvm = None if gateway is None else gateway.jvm  # noqa: SLF001
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        os.environ.pop(name, None)
    return before


def _end(jvm: "Jvm") -> None:
    try:
        jvm.end(END_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.process.kill()
        jvm.process.wait()


def _spark_missing(cause: str) -> str:
    return (
        f"the tiers' transforms cannot be validated: Spark does not start here ({cause}); "
        f"{INSTALL_AGENT}: Java is one of the packages"
    )


def _last_line(output: IO[bytes]) -> str:
    """Return the last line of the JVM's output, or an empty text."""
    output.seek(0)
    lines = [line.strip() for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:MAX_QUOTED] if lines else ""


if __name__ == "__main__":
    sys.exit(main())
