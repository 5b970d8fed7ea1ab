"""Find a Java that Spark 4.2 and Kafka run on: 17 or 21."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from ops.platform.layout import PlatformError

SUITABLE = (17, 21)


def version_of(java: Path) -> int | None:
    """Return the major version of a `java` program; None when it does not run."""
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', asked.stderr + asked.stdout)
    return int(found[1]) if found else None


def candidates(private: Path) -> list[Path]:
    """Where a Java may be: JAVA_HOME, PATH, then the one that was installed here."""
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path is not None:
        homes.append(Path(on_path).resolve().parent.parent)
    if private.is_dir():
        homes.extend(sorted(private.iterdir()))
    return homes


def look(private: Path) -> tuple[Path | None, list[str]]:
    """Return the first suitable Java home of this machine, and what was found before it, for people."""
    return find_among(candidates(private))


def find_among(homes: list[Path]) -> tuple[Path | None, list[str]]:
    """Return the first suitable Java home, and what the others are."""
    seen: list[str] = []
    for home in homes:
        version = version_of(home / "bin" / "java")
        if version in SUITABLE:
            return home, seen
        seen.append(f"{home} is " + ("no working Java" if version is None else f"Java {version}"))
    return None, seen


def find(private: Path) -> Path:
    """Return a Java home, installing Java 17 below `private` when the machine has none."""
    home, seen = look(private)
    if home is not None:
        return home
    try:
        import jdk  # noqa: PLC0415  needed on machines without Java only

        private.mkdir(parents=True, exist_ok=True)
        installed = Path(jdk.install("17", path=str(private)))
    except Exception as error:
        found = "; ".join(seen) or "none on JAVA_HOME or PATH"
        message = (
            f"Java 17 or 21 is needed ({found}), and fetching one failed: {error}. "
            "Install it (Debian and Ubuntu: apt install openjdk-17-jre-headless), or set JAVA_HOME."
        )
        raise PlatformError(message) from error
    if version_of(installed / "bin" / "java") is None:
        message = f"the Java that was fetched into {installed} does not run on this machine; install Java 17 or 21 and set JAVA_HOME"
        raise PlatformError(message)
    return installed
