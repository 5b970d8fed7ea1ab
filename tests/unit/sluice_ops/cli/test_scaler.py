"""`sluice scaler` shows the last decision about each tier, and sets the mode of a named tier."""

import json
from contextlib import nullcontext

import pytest
from simulation.memory import MemoryChannel
from simulation.world import TIERS
from typer.testing import CliRunner

from sluice_ops.main import app
from sluice_ops.model import paths
from sluice_ops.model.exit_codes import WRONG_USAGE
from sluice_ops.model.incarnation import OwnerRecord, TierWanted
from sluice_ops.model.scaler import Decision, Mode, ScalerModes, ScalerRecord
from sluice_ops.snapshot.view import TierView, View

KEYS = ("tier", "mode", "slots", "wanted", "reason", "since")
DECISIONS = {
    "entry": Decision(
        mode=Mode.ADVISE, slots=1, wanted=1, reason="60 records/s take 60% of 1 worker", since=5.0
    ),
    "enrich": Decision(mode=Mode.ACT, slots=2, wanted=4, reason="400 records/s need 4 workers", since=7.0),
}


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> MemoryChannel:
    """Return the channel of the command, whose pipeline has four tiers and two decisions."""
    tiers = {spec.name: TierView(spec, OwnerRecord(), TierWanted(), {}, {}) for spec in TIERS}
    view = View(tiers=tiers, scaler=ScalerRecord(decisions=DECISIONS))
    monkeypatch.setattr("sluice_ops.operations.snapshot.snapshot", lambda: view)
    channel = MemoryChannel()
    channel.put(paths.SCALER_MODES, ScalerModes())
    monkeypatch.setattr("sluice_ops.operations.connect.open_channel", lambda: nullcontext(channel))
    return channel


@pytest.mark.usefixtures("channel")
def test_the_last_decisions_are_shown_from_the_entry_on() -> None:
    shown = json.loads(CliRunner().invoke(app, ["scaler", "--json"]).stdout)
    values = [
        ("entry", "advise", 1, 1, "60 records/s take 60% of 1 worker", 5.0),
        ("enrich", "act", 2, 4, "400 records/s need 4 workers", 7.0),
    ]
    assert shown == [dict(zip(KEYS, each, strict=True)) for each in values]
    text = CliRunner().invoke(app, ["scaler"]).stdout
    head, _, *lines = filter(None, map(str.split, text.splitlines()))
    assert head == ["tier", "mode", "slots", "wanted", "since", "reason"]
    for line, (tier, mode, slots, wanted, reason, _) in zip(lines, values, strict=True):
        assert line[:4] == [tier, mode, str(slots), str(wanted)]
        assert " ".join(line).endswith(reason)


@pytest.mark.parametrize(
    ("words", "named"), [(["act"], "no tier is named"), (["off", "entri"], 'there is no tier "entri"')]
)
def test_a_mode_without_a_known_tier_is_refused(channel: MemoryChannel, words: list[str], named: str) -> None:
    done = CliRunner().invoke(app, ["scaler", *words])
    mode = words[0]
    sentence = f"{named}: write `sluice scaler {mode} TIER`, with one of counts, enrich, entry, outbound\n"
    assert (done.exit_code, done.stderr) == (WRONG_USAGE, sentence)
    read = channel.read(paths.SCALER_MODES, ScalerModes)
    assert read is not None
    assert read.value.modes == {}


def test_the_scaler_can_not_act_on_a_light_tier(
    channel: MemoryChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    light = TIERS[0].model_copy(update={"light": True})
    view = View(tiers={light.name: TierView(light, OwnerRecord(), TierWanted(), {}, {})})
    monkeypatch.setattr("sluice_ops.operations.snapshot.snapshot", lambda: view)
    done = CliRunner().invoke(app, ["scaler", "act", "entry"])
    assert done.exit_code == WRONG_USAGE
    assert done.stderr.startswith('tier "entry" is light: its driver does the work')
    assert CliRunner().invoke(app, ["scaler", "off", "entry"]).exit_code == 0
    read = channel.read(paths.SCALER_MODES, ScalerModes)
    assert read is not None
    assert read.value.modes == {"entry": Mode.OFF}


def test_the_mode_of_a_tier_is_set_and_the_others_keep_theirs(channel: MemoryChannel) -> None:
    for words, sentence in (
        ("act enrich", "The scaler is in mode act for enrich; its next decision comes within 15 s."),
        ("off entry", "The scaler is in mode off for entry; its next decision comes within 15 s, and then"),
    ):
        assert CliRunner().invoke(app, ["scaler", *words.split()]).stdout.startswith(sentence)
    read = channel.read(paths.SCALER_MODES, ScalerModes)
    assert read is not None
    assert read.value.modes == {"enrich": Mode.ACT, "entry": Mode.OFF}
