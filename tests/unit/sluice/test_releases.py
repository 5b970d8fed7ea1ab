"""Releases: unchanged code keeps its release, changed code gets a new one, and the stored copy is
loaded.
"""

import os
import py_compile
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice import releases
from sluice.api import declarations
from sluice.api.declarations import DeclarationError
from sluice.checks.shapes import columns, shapes
from sluice_ops.model.release import Release, StateShape, TierShape

CODE = """
from sluice_ops.model.tier import Kind
from sluice import Pipeline, Stream, Tier
from shop.words import WORD

def passed(raw):
    return raw

PIPELINE = Pipeline((Tier("t", Kind.ENTRY, (Stream("raw"),), passed, outputs=(Stream("out", "id string"),)),))
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """An importable package of a site."""
    package = tmp_path / "site" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(CODE)
    (package / "words.py").write_text("WORD = 'first'\n")
    monkeypatch.syspath_prepend(str(package.parent))
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def publish(home, module="shop"):
    return releases.store(home, module, 1.0, lambda: shapes(declarations.load(module), {}))


def test_unchanged_code_keeps_its_release(tmp_path, shop):
    first, is_new = publish(tmp_path)
    assert is_new
    assert first.name.startswith("r1-")
    assert first.tiers["t"].outputs[0].columns == {"id": "string"}
    (shop / "__pycache__").mkdir(exist_ok=True)
    (shop / "__pycache__" / "words.pyc").write_bytes(b"compiled")
    assert publish(tmp_path) == (first, False)
    (shop / "words.py").write_text("WORD = 'second'\n")
    second, is_new = publish(tmp_path)
    assert is_new
    assert second.name.startswith("r2-")
    (shop / "words.py").write_text("WORD = 'first'\n")
    assert publish(tmp_path) == (first, False)
    assert releases.all_stored(tmp_path) == [first, second]
    assert not list(releases.folder(tmp_path).glob(".partial-*"))


@pytest.mark.usefixtures("shop")
def test_a_release_knows_the_state_of_its_tiers(tmp_path):
    holding = TierShape(inputs=(), state=StateShape(lateness=60, time=None, operators=("Aggregate of who",)))
    release, _ = releases.store(tmp_path, "shop", 1.0, lambda: {"t": holding, "u": TierShape(inputs=())})
    assert releases.state_of(release, "t") == ("Aggregate of who",)
    assert releases.state_of(release, "u") is None


def test_the_stored_copy_is_loaded_whatever_the_checkout_has(tmp_path, shop):
    first, _ = publish(tmp_path)
    (shop / "words.py").write_text("WORD = 'second'\n")
    second, _ = publish(tmp_path)
    (shop / "__init__.py").write_text("raise RuntimeError\n")
    for release, expected_word in ((first, "first"), (second, "second")):
        loaded = releases.load(tmp_path, release.name, release).pipeline
        assert [tier.name for tier in loaded.tiers] == ["t"]
        assert expected_word == sys.modules["shop"].WORD
        assert not Path(str(sys.modules["shop.words"].__file__)).is_relative_to(tmp_path), (
            "code must not be loaded from the folder that other hosts write"
        )


def test_a_module_of_a_package_is_loaded_as_a_release(tmp_path, shop):
    (shop / "hits.py").write_text(CODE)
    release, _ = publish(tmp_path, "shop.hits")
    (shop / "hits.py").write_text("")
    loaded = releases.load(tmp_path, release.name, release).pipeline
    assert sys.modules["shop"].hits is sys.modules["shop.hits"]
    assert loaded.tier("t").transform(5) == 5


def test_functions_of_a_release_are_pickled_by_value(tmp_path, shop):
    from pyspark import cloudpickle  # noqa: PLC0415

    release, _ = publish(tmp_path)
    transform = releases.load(tmp_path, release.name, release).pipeline.tier("t").transform
    pickled = cloudpickle.dumps(transform)
    del sys.modules["shop"]
    (shop / "__init__.py").write_text("raise RuntimeError\n")
    assert cloudpickle.loads(pickled)(7) == 7


def test_a_changed_or_missing_release_is_refused(tmp_path, shop):
    release, _ = publish(tmp_path)
    (releases.folder(tmp_path) / release.name / "code" / shop.name / "words.py").write_text(
        "WORD = 'other'\n"
    )
    with pytest.raises(releases.ChangedError, match="was changed after it was published"):
        releases.load(tmp_path, release.name, release)
    shutil.rmtree(releases.folder(tmp_path) / release.name)
    with pytest.raises(releases.ChangedError, match=f"release {release.name} is not in"):
        releases.load(tmp_path, release.name, release)


def test_the_channel_and_not_the_folder_vouches_for_a_release(tmp_path, shop):
    release, _ = publish(tmp_path)
    folder = releases.folder(tmp_path) / release.name
    words = folder / "code" / shop.name / "words.py"
    words.write_text("WORD = 'forged'\n")
    forged = release.model_copy(update={"digest": releases.digest(folder / "code" / shop.name)})
    (folder / releases.DESCRIPTION).write_text(forged.model_dump_json())
    with pytest.raises(releases.ChangedError, match="was changed after it was published, and is not run"):
        releases.load(tmp_path, release.name, release)
    with pytest.raises(releases.ChangedError, match="is not in the channel"):
        releases.load(tmp_path, release.name, None)
    again, is_new = publish(tmp_path)
    assert (is_new, again.number) == (True, 2), (
        "publishing must store the code anew, and not use the changed copy"
    )


def test_compiled_files_in_the_release_folder_are_not_run(tmp_path, shop):
    release, _ = publish(tmp_path)
    code = releases.folder(tmp_path) / release.name / "code" / shop.name
    source = code / "words.py"
    original = source.stat()
    source.write_text("WORD = 'false'\n")  # as long as the published file
    compiled = Path(py_compile.compile(str(source), doraise=True))
    source.write_text("WORD = 'first'\n")
    os.utime(
        source,
        ns=(
            original.st_atime_ns,
            compiled_time := int.from_bytes(compiled.read_bytes()[8:12], "little") * 10**9,
        ),
    )
    assert compiled_time
    assert releases.digest(code) == release.digest
    releases.load(tmp_path, release.name, release)
    assert sys.modules["shop"].WORD == "first"


@pytest.mark.parametrize(
    "name", ["../r1-00000000", "r1-0", "r0-00000000", "r1-00000000/../..", "r1-0000000g", ".", ""]
)
def test_an_invalid_release_name_is_refused(tmp_path, name):
    record = Release.model_construct(name=name, module="shop", digest="0" * 64, published_at=0.0, tiers={})
    with pytest.raises(releases.ChangedError, match="is no name of a release"):
        releases.load(tmp_path, name, record)


def test_a_folder_that_claims_another_release_is_ignored(tmp_path, shop):
    release, _ = publish(tmp_path)
    elsewhere = tmp_path / "kept"
    elsewhere.mkdir()
    for number in range(2, releases.KEEP + 4):
        (shop / "words.py").write_text(f"WORD = {number}\n")
        publish(tmp_path)
    description = releases.folder(tmp_path) / release.name / releases.DESCRIPTION
    description.write_text(release.model_copy(update={"name": "../kept"}).model_dump_json())
    assert release.name not in {stored.name for stored in releases.all_stored(tmp_path)}
    releases.prune(tmp_path, ())
    assert elsewhere.exists()


def test_code_that_changed_after_its_check_is_not_stored(tmp_path, shop):
    checked = releases.digest(releases.source("shop"))
    assert releases.of_current_code(tmp_path, "shop") is None
    (shop / "words.py").write_text("WORD = 'other'\n")
    with pytest.raises(releases.ChangedError, match="was changed while it was published; publish again"):
        releases.store(tmp_path, "shop", 1.0, dict, checked)
    stored, _ = releases.store(tmp_path, "shop", 1.0, dict, releases.digest(releases.source("shop")))
    assert releases.of_current_code(tmp_path, "shop") == stored


def test_old_releases_are_removed_unless_something_uses_them(tmp_path, shop):
    for number in range(releases.KEEP + 3):
        (shop / "words.py").write_text(f"WORD = {number}\n")
        publish(tmp_path)
    first, second, third, *newer = releases.all_stored(tmp_path)
    assert releases.prune(tmp_path, {second.name}) == [first.name, third.name]
    assert releases.all_stored(tmp_path) == [second, *newer]


def test_the_shapes_of_hits_have_inputs_outputs_and_sinks():
    shapes_of_hits = shapes(declarations.load("hits"), {})
    assert shapes_of_hits["enrich"].inputs == shapes_of_hits["entry"].outputs
    assert shapes_of_hits["enrich"].outputs[0].grouping == "Fields(columns=('campaign',))"
    assert shapes_of_hits["counts"].sink is not None
    assert (shapes_of_hits["counts"].sink.kind, shapes_of_hits["counts"].sink.key) == (
        "Totals",
        ("campaign", "window_start"),
    )


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("id string, at bigint", {"id": "string", "at": "bigint"}),
        ("id: STRING,at long NOT NULL", {"id": "string", "at": "bigint"}),
        ("`a, b` struct<x: int, y: array<decimal(10, 2)>>, c map<string,long>", {
            "a, b": "struct<x:integer,y:array<decimal(10,2)>>", "c": "map<string,bigint>"}),
        ("id string comment 'what, is it', n int", {"id": "string", "n": "integer"}),
    ],
)  # fmt: skip
def test_columns_are_read_as_spark_reads_them(text, parsed):
    assert columns(text) == parsed


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,5}", fullmatch=True),
        st.sampled_from(["string", "array<bigint>", "decimal(5,2)"]),
        min_size=1,
    )
)
def test_columns_of_any_names_and_types_are_read(given_columns):
    assert columns(", ".join(f"{name} {kind}" for name, kind in given_columns.items())) == given_columns


def test_columns_without_a_type_are_refused():
    with pytest.raises(DeclarationError, match="'id' is not a name and a type"):
        columns("id, at bigint")


def test_streams_with_other_columns_have_another_shape():
    pipeline = declarations.load("hits")
    entry = pipeline.tier("entry")
    changed_entry = replace(entry, outputs=(replace(entry.outputs[0], columns="id string"),))
    changed = declarations.Pipeline((changed_entry,))
    assert shapes(changed, {})["entry"] != shapes(pipeline, {})["entry"]


def test_a_release_with_the_former_import_names_is_loaded(tmp_path, shop, monkeypatch):
    for name in ("ops", "pipeline"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    former = CODE.replace("sluice_ops.model.tier", "ops.model.tier").replace(
        "from sluice import", "from pipeline.declare import"
    )
    (shop / "__init__.py").write_text(former)
    release, _ = releases.store(tmp_path, "shop", 1.0, dict)
    assert [tier.name for tier in releases.load(tmp_path, release.name, release).pipeline.tiers] == ["t"]


@pytest.mark.usefixtures("shop")
def test_other_ids_of_schemas_need_a_new_release(tmp_path):
    release, _ = releases.store(tmp_path, "shop", 1.0, dict, schemas={"out": 3})
    assert release.schemas == {"out": 3}
    assert releases.store(tmp_path, "shop", 2.0, dict, schemas={"out": 3}) == (release, False)
    with pytest.raises(releases.ChangedError, match="the registry is another one, or has lost its schemas"):
        releases.store(tmp_path, "shop", 3.0, dict, schemas={"out": 4})
