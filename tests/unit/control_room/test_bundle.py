"""The committed bundle of the page is what its sources build, and the page's logic."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from playwright._impl._driver import compute_driver_executable

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "plugins" / "control_room"
BUNDLE = ROOT / "plugins" / "sluice_airflow" / "page" / "control_room.js"
NODE = Path(compute_driver_executable()[0])
"""Playwright's own Node, which `make install` brings; it has no npm."""
LARGEST_BYTES = 250_000
NO_REGISTRY = re.compile(
    "ENOTFOUND|ECONNREFUSED|ECONNRESET|EAI_AGAIN|ETIMEDOUT|ERR_SOCKET_TIMEOUT|ENOTCACHED"
)
"""npm's error without a network: later runs of the tests need none."""
BUILT_BY = "run: cd plugins/control_room && npm ci && npm run build"


def read(path: Path) -> bytes:
    return path.read_bytes()


def test_the_bundle_belongs_to_the_sources_of_this_checkout():
    head, _, code = read(BUNDLE).partition(b"\n")
    folders = [path for folder in ("host", "src") for path in (SOURCES / folder).iterdir()]
    files = [SOURCES / "build.mjs", SOURCES / "package-lock.json", SOURCES / "package.json", *folders]
    digest = hashlib.sha256()
    for path in sorted(files, key=lambda path: path.relative_to(SOURCES).as_posix()):
        digest.update(f"{path.relative_to(SOURCES).as_posix()}\0".encode() + read(path) + b"\0")
    code_digest = hashlib.sha256(code).hexdigest()
    assert head.decode() == f"// sources {digest.hexdigest()} code {code_digest}", BUILT_BY


@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm: the digests alone are compared")
@pytest.mark.timeout(300)
def test_the_sources_build_the_committed_bundle(tmp_path):
    copy, built = tmp_path / "control_room", tmp_path / "built.js"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("node_modules"))
    for command in (["npm", "ci", "--prefer-offline"], ["npm", "run", "check"]):
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        if done.returncode and (away := NO_REGISTRY.search(done.stderr)):
            pytest.skip(f"no registry of packages ({away[0]}): the digests alone are compared")
        assert done.returncode == 0, done.stdout + done.stderr
    subprocess.run(["node", "build.mjs", str(built)], cwd=copy, check=True)
    assert read(built) == read(BUNDLE), BUILT_BY


def test_the_lock_pins_each_package_and_names_no_registry():
    lock = json.loads(read(SOURCES / "package-lock.json"))
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert all("integrity" in package and "resolved" not in package for package in packages.values())
    wanted = json.loads(read(SOURCES / "package.json"))["devDependencies"]
    assert all(re.fullmatch(r"[0-9.]+", version) for version in wanted.values())
    assert "dependencies" not in json.loads(read(SOURCES / "package.json")), "React is Airflow's"


def test_the_bundle_is_small_and_has_no_react_of_its_own():
    code = read(BUNDLE).decode()
    assert len(code.encode()) < LARGEST_BYTES
    assert "globalThis.React" in code
    assert "react.element" not in code


def test_the_page_writes_what_it_reads_as_text():
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|\beval\(", read(BUNDLE).decode())


def test_the_page_uses_no_address_but_airflows():
    found = set(re.findall(r"https?://[^\"'`\s]+", read(BUNDLE).decode()))
    assert not found


def test_the_logic_of_the_page():
    tests = sorted(str(path) for path in (SOURCES / "tests").glob("*.test.ts"))
    assert tests
    done = subprocess.run([NODE, "--test", *tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
