"""The peers' jars, and their few lines of Java, fetched and compiled below `.sluice`."""

import os
import shutil
import subprocess
import threading
from pathlib import Path

from sluice_ops.local import fetch_jars
from sluice_ops.local.layout import DEFAULT_BASE, Layout, Ports
from sluice_ops.site.installation import PlatformError
from tests.lab import ROOT

HERE = Path(__file__).parent
LOCK = HERE / "jars.lock"
HOME = ROOT / ".sluice"


def home() -> Path:
    """Return the JDK: JAVA_HOME, or that of the compiler on PATH.

    The other systems support Java 17 and 21.
    """
    java_home = os.environ.get("JAVA_HOME")
    compiler = (
        Path(java_home) / "bin" / "javac" if java_home else Path(shutil.which("javac") or "javac").resolve()
    )
    if not compiler.exists():
        message = (
            f"the other systems' jobs are compiled with javac, and there is none at {java_home or 'PATH'}: "
            "install a JDK (Debian and Ubuntu: apt install openjdk-17-jdk-headless), or set JAVA_HOME to one"
        )
        raise PlatformError(message)
    return compiler.parent.parent


def fetched(folder: str) -> Path:
    """Return the folder of a system's jars; fetch missing jars."""
    layout = Layout(home=HOME, ports=Ports.above(DEFAULT_BASE), site=ROOT / "site.yaml")
    layout.make_folders()
    fetch_jars.fetch(layout, threading.Event(), LOCK)
    return HOME / "jars" / folder


def compiled(name: str, needs: Path, into: Path) -> Path:
    """Compile a source file next to this file; return its jar."""
    classes, jar = into / "classes", into / f"{name}.jar"
    tools = home() / "bin"
    subprocess.run(
        [tools / "javac", "-nowarn", "-cp", f"{needs}/*", "-d", classes, HERE / f"{name}.java"], check=True
    )
    subprocess.run([tools / "jar", "cf", jar, "-C", classes, "."], check=True)
    return jar
