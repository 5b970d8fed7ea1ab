"""Make the checkout's own Python environment: `.venv`, filled from requirements.lock. `make` runs this before everything else.

It runs under whatever Python the machine has, before anything is installed: standard library only, nothing of the project imported.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

CHECKOUT = Path(__file__).resolve().parents[3]
ENVIRONMENT = CHECKOUT / ".venv"
LOCK = CHECKOUT / "requirements.lock"
MARKER = ENVIRONMENT / ".installed-lock"
UV_HOME = CHECKOUT / ".sluice" / "uv"
OLDEST, TOO_NEW = (3, 11), (3, 13)
SUITABLE = ("python3.12", "python3.11")


def say(sentence: str) -> None:
    """Tell the user how it goes."""
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def stop(sentence: str) -> NoReturn:
    """End with what is wrong and what to do."""
    sys.stderr.write(f"install: {sentence}\n")
    raise SystemExit(1)


def wanted_state() -> str:
    """Return what the environment depends on, as a checksum: the lock, the project's own metadata, and this way of installing."""
    parts = (
        LOCK.read_bytes(),
        (CHECKOUT / "pyproject.toml").read_bytes(),
        Path(__file__).read_bytes(),
        str(CHECKOUT).encode(),
    )
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def registry_settings() -> "dict[str, str]":
    """Hand on what pip is set up with, so that uv asks the same registry and trusts the same certificates."""
    settings = dict(os.environ)

    def of_pip(key: str) -> "str | None":
        asked = subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", f"global.{key}"],
            capture_output=True,
            text=True,
            check=False,
        )
        return os.environ.get("PIP_" + key.upper().replace("-", "_")) or asked.stdout.strip() or None

    for key, name in (
        ("index-url", "UV_DEFAULT_INDEX"),
        ("extra-index-url", "UV_INDEX"),
        ("cert", "SSL_CERT_FILE"),
    ):
        value = None if name in settings else of_pip(key)
        if value:
            settings[name] = value
    settings.setdefault("UV_HTTP_TIMEOUT", "180")
    return settings


def uv() -> str:
    """Return uv: the machine's own, or one that is installed privately below `.sluice`."""
    private = UV_HOME / "bin" / "uv"
    if private.exists():
        return str(private)
    if found := shutil.which("uv"):
        return found
    UV_HOME.parent.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(UV_HOME)], capture_output=True, text=True, check=False
    )
    if made.returncode == 0:
        command = [str(UV_HOME / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"]
    else:  # Debian keeps `ensurepip` in a package of its own; a pip that is there already does as well
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(UV_HOME), "uv"]
    if subprocess.run(command, check=False).returncode != 0 or not private.exists():
        stop(
            "uv could not be installed from your Python package registry (see above). Check the network and pip's settings; "
            "on Debian and Ubuntu `apt install python3-venv` may be what is missing; or install uv yourself and put it on PATH."
        )
    return str(private)


def python() -> str:
    """Return the Python that the environment is made with: this one where it fits."""
    if OLDEST <= sys.version_info[:2] < TOO_NEW:
        return sys.executable
    return next((found for name in SUITABLE if (found := shutil.which(name))), "3.12")


LOCK_HEADER = """\
# Everything that Sluice runs and is developed with, at exact versions and with checksums. Written by `make lock`; do not edit.
# It names no registry on purpose: docs/decisions/0004-dependency-lock-without-urls.md.
"""


def relock() -> None:
    """Choose versions within pyproject.toml anew and write the lock, without any address."""
    tool, settings = uv(), registry_settings()
    subprocess.run([tool, "lock", "--upgrade"], env=settings, cwd=CHECKOUT, check=True)
    export = [
        tool,
        "export",
        "--quiet",
        "--frozen",
        "--all-groups",
        "--no-emit-project",
        "--no-header",
        "--no-annotate",
    ]
    asked = subprocess.run(export, env=settings, cwd=CHECKOUT, check=True, capture_output=True, text=True)
    if "://" in asked.stdout:
        stop("the exported lock names an address; pyproject.toml must not ask for packages by URL")
    LOCK.write_text(LOCK_HEADER + asked.stdout)


def main() -> None:
    """Make the environment, or do nothing when it is what the lock says."""
    if sys.version_info[:2] < OLDEST:
        stop(
            f"Python {sys.version_info[0]}.{sys.version_info[1]} is too old: make PYTHON=/path/to/python3.11 (or 3.12)"
        )
    if sys.argv[1:] == ["lock"]:
        relock()
        return
    state = wanted_state()
    if MARKER.exists() and MARKER.read_text() == state and (ENVIRONMENT / "bin" / "python").exists():
        return
    begun = time.monotonic()
    tool, settings = uv(), registry_settings()
    say(f"environment  installing {LOCK.name} into {ENVIRONMENT} (once; about a minute)")
    interpreter = ENVIRONMENT / "bin" / "python"
    steps = [
        [
            tool,
            "pip",
            "sync",
            "--quiet",
            "--python",
            str(interpreter),
            "--require-hashes",
            "--compile-bytecode",
            str(LOCK),
        ],
        [
            tool,
            "pip",
            "install",
            "--quiet",
            "--python",
            str(interpreter),
            "--no-deps",
            "--editable",
            str(CHECKOUT),
        ],
    ]
    if not interpreter.exists():
        steps.insert(0, [tool, "venv", "--quiet", "--clear", "--python", python(), str(ENVIRONMENT)])
    for step in steps:
        if subprocess.run(step, env=settings, check=False).returncode != 0:
            stop(
                f"`{' '.join(step)}` failed (see above). Nothing else was changed; mend what it names and run make again."
            )
    MARKER.write_text(state)
    say(f"environment  ready in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
