"""The scaler's settings: a tier's own values above the defaults, as they apply and are stored."""

import yaml

from sluice_ops.model.scaler import Mode, ScalerSettings


def read(text):
    return ScalerSettings.model_validate(yaml.safe_load(text))


def test_a_tier_takes_the_values_that_it_lacks_from_the_defaults():
    settings = read("{defaults: {mode: act, catch_up: 60}, tiers: {t: {catch_up: 900}, u: {mode: off}}}")
    assert (settings.of("t").mode, settings.of("t").catch_up) == (Mode.ACT, 900.0)
    assert (settings.of("u").mode, settings.of("u").catch_up) == (Mode.OFF, 60.0)
    assert settings.of("v") == settings.defaults


def test_without_settings_the_scaler_advises():
    assert ScalerSettings().of("t").mode is Mode.ADVISE


def test_stored_settings_are_the_same():
    settings = read("{defaults: {mode: act}, tiers: {t: {mode: advise, utilisation: 0.6}}}")
    assert ScalerSettings.model_validate_json(settings.model_dump_json()) == settings
