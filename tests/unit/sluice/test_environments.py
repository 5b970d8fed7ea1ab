"""The environment of a pipeline: built once for each lock, put into releases, verified there."""

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sluice import releases
from sluice.api.declarations import DeclarationError
from sluice.dependencies import build as builds
from sluice.dependencies.build import Build, build, python_here
from sluice.dependencies.environment import ARCHIVE
from sluice.dependencies.lock import JARS, REQUIREMENTS
from sluice_ops.model.release import Release
from tests.made_packages import finding, make_jar, make_wheel

WORD = {"tinyword.py": "WORD = 'one'\n", "tinydata/text": "data\n"}
JAVA = "package org.example; public class Shout { public static String shout(String w) { return w; } }"
LOAD = """
import sys
from pathlib import Path
from sluice import releases
release = releases.Release.model_validate_json(Path(sys.argv[2]).read_text())
loaded = releases.load(Path(sys.argv[1]), release.name, release)
print(sys.modules["shop"].tinyword.WORD, loaded.environment.packages)
"""
BUILD = """
import sys
from pathlib import Path
from sluice.dependencies.build import build
print(build(Path(sys.argv[1])).seconds is None)
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A project whose pipeline imports a package of its lock."""
    (tmp_path / "site.yaml").touch()
    code = tmp_path / "shop"
    code.mkdir()
    (code / "__init__.py").write_text(
        "import tinyword\nfrom sluice import Kind, Pipeline, Stream, Tier\n"
        "OUT = Stream('out', 'id string')\n"
        "PIPELINE = Pipeline((Tier('t', Kind.ENTRY, (Stream('raw'),), lambda raw: raw, outputs=(OUT,)),))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return code


def lock(shop: Path, *lines: str) -> None:
    (shop / REQUIREMENTS).write_text("\n".join(["--no-index", "--find-links ../wheels", *lines]) + "\n")


def wheel(shop: Path, version: str = "1.0", **more: str) -> str:
    (shop.parent / "wheels").mkdir(exist_ok=True)
    return make_wheel(shop.parent / "wheels", "tinyword", version, WORD | {"version": version}, **more)


def built(shop: Path) -> Build:
    """Build as a new process does."""
    builds._build.cache_clear()
    result = build(shop)
    assert result is not None
    return result


def test_an_environment_is_built_once_for_each_lock(shop, capsys):
    lock(shop, wheel(shop))
    first = built(shop)
    assert (first.contents.packages, first.contents.python) == ({"tinyword": "1.0"}, None)
    assert capsys.readouterr().err == "building the environment, once for this lock: tinyword\n"
    assert "tinyword.py" in zipfile.ZipFile(first.folder / ARCHIVE).namelist()
    again = built(shop)
    assert (again.folder, again.contents, again.seconds) == (first.folder, first.contents, None)
    assert capsys.readouterr().err == ""
    bytes_before = (first.folder / ARCHIVE).read_bytes()
    shutil.rmtree(first.folder.parent)
    assert (built(shop).folder / ARCHIVE).read_bytes() == bytes_before, "equal packages, equal bytes"
    lock(shop, wheel(shop, "2.0"))
    assert built(shop).folder != first.folder


def test_what_an_ended_build_left_is_removed_by_the_next_one(shop):
    lock(shop, wheel(shop))
    left = built(shop).folder.parents[1] / f"{builds.UNFINISHED}ended"
    left.mkdir()
    built(shop)
    assert not left.exists()


def test_two_publishers_of_one_lock_build_it_once(shop):
    lock(shop, wheel(shop))
    command = [sys.executable, "-c", BUILD, str(shop)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sorted(process.communicate()[0] for process in both) == ["False\n", "True\n"]


def test_only_the_newest_builds_are_kept(shop):
    for number in range(builds.KEEP + 1):
        lock(shop, wheel(shop, f"{number}.0"))
        newest = built(shop)
        os.utime(newest.folder.parent, (number, number))
    left = [path for path in newest.folder.parents[1].iterdir() if path.is_dir()]
    assert len(left) == builds.KEEP
    assert newest.folder.parent in left


def test_jars_are_fetched_and_compared_with_their_checksum(shop, tmp_path, monkeypatch):
    line = make_jar(tmp_path / "repository", "org.example:shout:1.0", "org.example.Shout", JAVA)
    for name, value in finding(tmp_path / "repository").items():
        monkeypatch.setenv(name, value)
    (shop / JARS).write_text(f"{line}\n")
    contents = built(shop).contents
    assert (contents.packages, contents.jars) == ({}, ("org.example:shout:1.0",))
    (shop / JARS).write_text(f"{line[:-64]}{'0' * 64}\n")
    with pytest.raises(DeclarationError, match=r"shout-1.0.jar differs from its checksum in jars.lock"):
        built(shop)
    (shop / JARS).write_text(f"org.example:whisper:1.0 {'0' * 64}\n")
    with pytest.raises(DeclarationError, match=r"Ivy cannot fetch .*org.example#whisper;1.0: not found"):
        built(shop)


def test_an_incomplete_lock_is_refused_with_what_is_missing(shop):
    lock(shop, wheel(shop, headers="Requires-Dist: absent>=2\n"))
    with pytest.raises(DeclarationError, match=r"is incomplete: tinyword needs absent>=2; lock the needed"):
        built(shop)
    lock(shop, wheel(shop, "2.0", headers="Requires-Dist: pandas\n"))
    assert built(shop).contents.packages == {"tinyword": "2.0"}, "Sluice has pandas"


def test_a_package_that_pip_cannot_get_is_refused_with_its_words(shop):
    line = wheel(shop)
    lock(shop, line.replace("==1.0", "==1.1"))
    with pytest.raises(DeclarationError, match=r"(?s)pip cannot install .*tinyword==1.1.*Only wheels are"):
        built(shop)
    (shop / REQUIREMENTS).write_text(f"--no-index\n--find-links nowhere\n{line}\n")
    with pytest.raises(DeclarationError, match=r"shop/nowhere does not exist; correct the folder of wheels"):
        built(shop)
    lock(shop, f"tinyword==1.0 --hash=sha256:{'0' * 64}")
    with pytest.raises(DeclarationError, match=r"(?s)pip cannot install .*HASH.*not the one that was locked"):
        built(shop)
    lock(shop, wheel(shop, "2.0", headers="Requires-Python: >=3.99\n"))
    with pytest.raises(DeclarationError, match=r"(?s)'>=3.99'.*Publish with the Python of the hosts"):
        built(shop)


def test_a_registry_that_is_away_is_named_as_the_cause(shop, monkeypatch):
    monkeypatch.setenv("PIP_RETRIES", "1")
    (shop / REQUIREMENTS).write_text(f"--index-url http://127.0.0.1:9/\n{wheel(shop)}\n")
    with pytest.raises(DeclarationError, match=r"(?s)Connection refused.*The registry does not answer"):
        built(shop)


def load(home: Path, release: Release) -> "subprocess.CompletedProcess[str]":
    """Load a release as a driver does, in a process of its own."""
    description = releases.place(home, release.name) / releases.DESCRIPTION
    copy = home / "in-channel.json"
    if not copy.exists():
        shutil.copyfile(description, copy)
    command = [sys.executable, "-c", LOAD, str(home), str(copy)]
    return subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)


def test_a_release_has_its_environment_and_is_refused_without_it(shop, tmp_path):
    lock(shop, wheel(shop))
    builds._build.cache_clear()
    home = tmp_path / "home"
    release, is_new = releases.store(home, "shop", 1.0, dict)
    assert is_new
    assert release.environment is not None
    assert releases.store(home, "shop", 2.0, dict) == (release, False)
    done = load(home, release)
    assert done.stdout.startswith("one "), done.stderr
    packages = Path(done.stdout.split()[1])
    assert not packages.is_relative_to(home), "packages must not be imported from the shared folder"
    assert not packages.parent.exists(), "a process removes its copies"
    archive = releases.place(home, release.name) / "environment" / ARCHIVE
    with zipfile.ZipFile(archive, "a") as changed:
        changed.writestr("sitecustomize.py", "raise SystemExit")
    assert "was changed after it was published, and is not run" in load(home, release).stderr
    shutil.rmtree(archive.parent)
    assert "was changed after it was published, and is not run" in load(home, release).stderr


def test_releases_with_equal_packages_share_their_files(shop, tmp_path):
    lock(shop, wheel(shop))
    builds._build.cache_clear()
    names = []
    for number in range(2):
        with (shop / "__init__.py").open("a") as source:
            source.write(f"# {number}\n")
        names.append(releases.store(tmp_path / "home", "shop", 1.0, dict)[0].name)
    first, second = (releases.place(tmp_path / "home", name) / "environment" / ARCHIVE for name in names)
    assert first.samefile(second)
    assert not first.samefile(built(shop).folder / ARCHIVE), "hosts can write the shared folder"
    shutil.rmtree(first.parents[1])
    assert zipfile.ZipFile(second).namelist()


def test_compiled_packages_are_refused_by_another_python(shop):
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}-none-linux_{platform.machine()}"
    lock(shop, wheel(shop, tag=tag))
    contents = built(shop).contents
    assert contents.python == python_here()
    other = contents.model_copy(update={"python": "cpython-39 s390x"})
    release = Release(name="r1-00000000", module="shop", digest="0", published_at=0.0, environment=other)
    message = f"compiled for cpython-39 s390x, and this host has {python_here()}"
    with pytest.raises(releases.ChangedError, match=message):
        releases._refuse_other_python(release)
