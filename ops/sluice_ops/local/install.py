"""Create the checkout's Python environment `.venv` from requirements.lock. `make` runs this first.

This file runs under any Python of the machine, before anything is installed. So it imports the
standard library only, and nothing of the project.
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
    """Print a line at once."""
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def stop(sentence: str) -> NoReturn:
    """Exit with code 1 and this error."""
    sys.stderr.write(f"install: {sentence}\n")
    raise SystemExit(1)


def wanted_state() -> str:
    """Return a checksum of everything that the environment depends on.

    That is the lock, the project's metadata, this file, and the path of the checkout.
    """
    parts = (
        LOCK.read_bytes(),
        (CHECKOUT / "pyproject.toml").read_bytes(),
        Path(__file__).read_bytes(),
        str(CHECKOUT).encode(),
    )
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def registry_settings() -> "dict[str, str]":
    """Return the environment for uv: pip's registry and certificates apply to uv, too."""
    settings = dict(os.environ)

    def pip_setting(key: str) -> "str | None":
        done = subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", f"global.{key}"],
            capture_output=True,
            text=True,
            check=False,
        )
        return os.environ.get("PIP_" + key.upper().replace("-", "_")) or done.stdout.strip() or None

    for key, name in (
        ("index-url", "UV_DEFAULT_INDEX"),
        ("extra-index-url", "UV_INDEX"),
        ("cert", "SSL_CERT_FILE"),
    ):
        value = None if name in settings else pip_setting(key)
        if value:
            settings[name] = value
    settings.setdefault("UV_HTTP_TIMEOUT", "180")
    return settings


def uv() -> str:
    """Return the path of uv: one below `.sluice`, the machine's own, or a newly installed one."""
    private = UV_HOME / "bin" / "uv"
    if private.exists():
        return str(private)
    if on_path := shutil.which("uv"):
        return on_path
    UV_HOME.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "venv", str(UV_HOME)], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        command = [str(UV_HOME / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"]
    else:  # Debian has `ensurepip` in a separate package; an installed pip serves as well
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(UV_HOME), "uv"]
    if subprocess.run(command, check=False).returncode != 0 or not private.exists():
        stop(
            "uv could not be installed from your Python package registry (see above). "
            "Check the network and pip's settings; on Debian and Ubuntu, try `apt install python3-venv`; "
            "or install uv yourself and put it on PATH. Then run make again."
        )
    return str(private)


def python() -> str:
    """Return the Python for the environment: the running one if its version is supported."""
    if OLDEST <= sys.version_info[:2] < TOO_NEW:
        return sys.executable
    return next((path for name in SUITABLE if (path := shutil.which(name))), "3.12")


LOCK_HEADER = """\
# Everything that Sluice runs and is developed with, at exact versions and with checksums. Written
# by `make lock`; do not edit. It names no registry on purpose:
# docs/decisions/0004-dependency-lock-without-urls.md.
"""


def relock() -> None:
    """Choose the newest versions within pyproject.toml, and write the lock without any address."""
    tool, settings = uv(), registry_settings()
    subprocess.run([tool, "lock", "--upgrade"], env=settings, cwd=CHECKOUT, check=True)
    export = [
        tool,
        "export",
        "--quiet",
        "--frozen",
        "--all-groups",
        "--all-extras",
        "--no-emit-project",
        "--no-header",
        "--no-annotate",
    ]
    done = subprocess.run(export, env=settings, cwd=CHECKOUT, check=True, capture_output=True, text=True)
    if "://" in done.stdout:
        stop(
            "the exported lock contains a URL: pyproject.toml must not name packages by URL; remove it there"
        )
    LOCK.write_text(LOCK_HEADER + done.stdout)


def build_wheel(folder: Path) -> None:
    """Build the wheel of this checkout into a folder."""
    build = [uv(), "build", "--quiet", "--wheel", "--out-dir", str(folder), str(CHECKOUT)]
    subprocess.run(build, env=registry_settings(), check=True)


def main() -> None:
    """Create or update the environment; do nothing if it matches the lock."""
    if sys.version_info[:2] < OLDEST:
        stop(
            f"Python {sys.version_info[0]}.{sys.version_info[1]} is too old; "
            "name a newer one: make install PYTHON=/path/to/python3.11 (or 3.12)"
        )
    if sys.argv[1:] == ["lock"]:
        relock()
        return
    if sys.argv[1:] == ["wheel"]:
        build_wheel(CHECKOUT / "dist")
        return
    state = wanted_state()
    if MARKER.exists() and MARKER.read_text() == state and (ENVIRONMENT / "bin" / "python").exists():
        return
    began = time.monotonic()
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
                f"`{' '.join(step)}` failed (see above). "
                "Nothing else was changed; correct the cause and run make again."
            )
    MARKER.write_text(state)
    say(f"environment  ready in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
