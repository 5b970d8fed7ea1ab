"""Every tier's transform, run on no records in a small Spark of its own: what a driver would refuse is told before anything is published.

`sluice.commands.publish` calls it. A start of the platform runs `python -m sluice.commands.validation` beside the services that publishing
waits for. The home keeps the digest of code that passed, so that publishing the same code does not check it again.
"""

import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import sluice
from sluice import releases
from sluice.api import declarations
from sluice.api.declarations import DeclarationError, Pipeline, Tier
from sluice.checks.shapes import shape
from sluice_ops.site import endpoints, site_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.driver.spark.jvm import Jvm

WRONG = 1
HEAP = 512
"""Of the JVM that plans the transforms. Unit: MiB."""
END_SECONDS = 30.0
WORDS = 300
"""So much of a JVM's last line is quoted. Unit: characters."""
SETTINGS = {
    "spark.app.name": "sluice validation",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
"""What the plan of a transform may depend on is as in a driver's session."""


class UncheckedError(Exception):
    """There is no Spark here that could tell; the message says what to do."""


@dataclass(frozen=True)
class Validation:
    """What was found."""

    wrong: Mapping[str, str]
    """What is wrong, by tier; valid ones are not among them."""
    holds: Mapping[str, tuple[str, ...]]
    """What those with state hold in Spark, operator by operator."""

    def sentences(self) -> list[str]:
        """Say what is wrong, tier by tier."""
        return [f'tier "{name}": {problem}' for name, problem in self.wrong.items()]


def main() -> int:
    """Check code that is new, and note that it is sound."""
    try:
        settings = site_file.load(Path(os.environ.get("SLUICE_SITE", "site.yaml")))
        if is_known(home(), settings.pipeline):
            sys.stdout.write(f"{settings.pipeline}: the code is known\n")
            return 0
        found = validate(declarations.load(settings.pipeline), home(), settings.pipeline)
    except (site_file.SiteError, DeclarationError, UncheckedError) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG
    if not found.wrong:
        return 0
    sys.stderr.writelines(
        f"{sentence}\n"
        for sentence in [*found.sentences(), "nothing is published: mend what is named, and start again"]
    )
    return WRONG


def home() -> Path:
    """Return the folder that all hosts share; where nobody has said yet which it is, this installation's."""
    try:
        return endpoints.load().home
    except (FileNotFoundError, endpoints.EndpointsError):
        return endpoints.home()


def is_known(shared: Path, module: str) -> bool:
    """Tell whether the code as it is now is a release, or was found sound."""
    return releases.same(shared, module) is not None or noted(shared, module) is not None


def validate(pipeline: Pipeline, shared: Path, module: str) -> Validation:
    """Check every tier, and note it where all of them are valid."""
    mark, wrong, holds = _mark(module), dict[str, str](), dict[str, tuple[str, ...]]()
    with _session(shared) as session:
        for tier in pipeline.tiers:
            try:
                holds[tier.name] = _check(session, tier)
            except DeclarationError as error:
                wrong[tier.name] = str(error).removeprefix(f'tier "{tier.name}": ')
    found = Validation(wrong, {name: operators for name, operators in holds.items() if operators})
    if not wrong:
        _note(shared, mark, found)
    return found


def noted(shared: Path, module: str) -> Validation | None:
    """Return what was found the last time, if that was this code and this Sluice, and sound."""
    try:
        said = json.loads(_place(shared).read_text())
        if said["mark"] == _mark(module):
            return Validation({}, {name: tuple(operators) for name, operators in said["holds"].items()})
    except (OSError, ValueError, KeyError):
        pass  # it is found out again
    return None


def _note(shared: Path, mark: str, found: Validation) -> None:
    """Leave what was found, where there is a home: a fresh checkout has none, and a check makes none."""
    partial = _place(shared).with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        partial.write_text(json.dumps({"mark": mark, "holds": found.holds}))
        partial.replace(_place(shared))


def _place(shared: Path) -> Path:
    return shared / "validated.json"


def _mark(module: str) -> str:
    """Tell this code from any other, and what checks it too."""
    made_of = (
        module,
        releases.digest(releases.source(module)),
        releases.digest(Path(sluice.__file__).parent),
    )
    return hashlib.sha256("\n".join(made_of).encode()).hexdigest()


def _check(session: "SparkSession", tier: Tier) -> tuple[str, ...]:
    """Refuse a transform that a driver would refuse, or that fails; return what it holds in Spark."""
    from sluice.checks.operators import check_tier  # noqa: PLC0415
    from sluice.checks.state_plans import state_operators  # noqa: PLC0415
    from sluice.failures import plainly  # noqa: PLC0415 — all of these take Spark, which code that is known does not wait for

    shape(tier, ())  # what can be read of its declaration only
    try:
        check_tier(session, tier)
        return state_operators(session, tier) if tier.state is not None else ()
    except DeclarationError:
        raise
    except Exception as error:
        said = plainly(error).partition("\n")[0].rstrip(";")
        message = f"its transform fails at {_place_of(error)}: {said}"
        raise DeclarationError(message) from error


def _place_of(error: Exception) -> str:
    """Return the line that failed, which is not one of Spark's."""
    lines = traceback.extract_tb(error.__traceback__)
    own = [line for line in lines if not {"pyspark", "py4j"} & set(Path(line.filename).parts)]
    return f"{own[-1].filename}:{own[-1].lineno}"


@contextmanager
def _session(shared: Path) -> Iterator["SparkSession"]:
    """Open a session in a JVM of its own, which ends with it, and whose words are quoted where it does not start."""
    with tempfile.TemporaryFile() as words:
        try:
            from sluice.driver.spark.jvm import JvmError, launch  # noqa: PLC0415 — as above
            from sluice.driver.spark.session import open_session  # noqa: PLC0415

            process = launch(HEAP, shared, says=words)
        except (ImportError, OSError, RuntimeError) as error:  # no Java, or no Spark
            raise UncheckedError(_missing(str(error))) from error
        before = _use(None)
        try:
            try:
                session = open_session("local[1]", SETTINGS, process)
            except Exception as error:
                said = _last(words) if isinstance(error, JvmError) else ""
                raise UncheckedError(_missing(said or str(error))) from error
            session.sparkContext.setLogLevel("ERROR")
            logging.getLogger("DataFrameQueryContextLogger").setLevel(
                logging.CRITICAL
            )  # Spark's, which says all of an error again
            try:
                yield session
            finally:
                ended = process.process.poll() is not None
                with suppress(Exception):  # of a JVM that is gone
                    session.stop()
                    session.sparkContext._gateway.shutdown()  # noqa: SLF001 — there is no public way to end the JVM
            if ended:
                said = _last(words)
                message = f"Spark ended while it checked the tiers, so nothing is known of them ({said}); free memory, and try again"
                raise UncheckedError(message)
        finally:
            _use(before)
            _end(process)


def _use(gateway: Any) -> Any:
    """Have PySpark, which knows one JVM, speak to this one, or to one yet to be named; return the one before."""
    from pyspark import SparkContext  # noqa: PLC0415 — as above

    before = SparkContext._gateway  # noqa: SLF001 — there is no public way
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


def _missing(why: str) -> str:
    return f"the tiers' transforms cannot be checked: Spark does not start here ({why}); `make install` brings Java and Spark's jars"


def _last(words: IO[bytes]) -> str:
    """Return the last line that the JVM said, if any."""
    words.seek(0)
    said = [line.strip() for line in words.read().decode(errors="replace").splitlines() if line.strip()]
    return said[-1][:WORDS] if said else ""


if __name__ == "__main__":
    sys.exit(main())
