"""The site file: an unusable value is refused, with its key and the correct form."""

from pathlib import Path

import pytest

from sluice_ops.site.site_file import SiteError, load, unmatched_places

HOST = "{name: h1, address: 127.0.1.1, capacity: {cpu: 1, memory: 1g}}"

LINKED = f"{HOST[:-1]}, network: {{interface: eth0, mbit: 1000}}}}"


def refused(path: Path) -> str:
    with pytest.raises(SiteError) as error:
        load(path)
    return str(error.value).removeprefix(f"{path}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"pipeline: p\nhosts: [{HOST}, {HOST}]",
            ": hosts: two hosts have the name h1; give each host a different name",
        ),
        (
            f"pipeline: p\nhosts: [{HOST}]\nreboot: []",
            ": reboot: the list is empty: write at least one item, or remove the key",
        ),
        *(
            (
                f"pipeline: p\nhosts: []\nshifts: {{night: {{schedule: '{schedule}'}}}}",
                (
                    f": shifts.night.schedule: {schedule!r} is not a cron schedule, "
                    "or names a time that never comes: write five "
                ),
            )
            for schedule in ("", "22:00", "0 25 * * *", "0 22 * *", "0 22 * * * *", "@daily", "0 0 31 2 *")
        ),
        (
            "pipeline: p\nhosts: []\nlocality: {t: 'racks:r1'}",
            ": locality.t: 'racks:r1' is not a place: write a host's name",
        ),
        (
            "pipeline: p\nhosts: []\ndedicated: {'label:': [t]}",
            ": dedicated.label:: 'label:' is not a place: write a host's name",
        ),
        *(
            (
                f"pipeline: p\nhosts: [{HOST[:-1]}, network: {{interface: '{interface}', mbit: 1000}}}}]",
                (
                    f": hosts.0.network.interface: {interface!r} is no interface on which units send: "
                    "write the name that `ip -br link` shows"
                ),
            )
            for interface in ("", "lo", "eth0:1", "a b", "sixteen-and-more")
        ),
        (
            f"pipeline: p\nhosts: [{HOST[:-1]}, network: {{interface: eth0, mbit: 1}}}}]",
            ": hosts.0.network.mbit: Input should be greater than or equal to 10; the value is 1",
        ),
        (
            f"pipeline: p\nhosts: [{LINKED}, {LINKED.replace('h1', 'h2')}]",
            (
                ": hosts: two hosts have eth0 at 127.0.1.1 as network; "
                "keep the key `network` at one of these hosts"
            ),
        ),
        *(
            (f"pipeline: p\nhosts: []\nshares: {{t: {share}}}", f": shares.t: its {reason}; lower ")
            for share, reason in (
                ("{target: 20, maximum: 16}", "target of 20 is above its maximum of 16"),
                ("{minimum: 3, target: 2}", "minimum of 3 is above its target of 2"),
                ("{minimum: 3, maximum: 2}", "minimum of 3 is above its maximum of 2"),
                ("{minimum: 20.5%, target: 20.2%}", "minimum of 20.5% is above its target of 20.2%"),
            )
        ),
        (
            (
                "pipeline: p\nhosts: []\nshifts: {night: {schedule: '0 22 * * *', shares: {t: {minimum: "
                "6, maximum: 2}}}}"
            ),
            (
                ": shifts.night.shares.t: its minimum of 6 is above its maximum of 2; "
                "lower minimum, or raise maximum"
            ),
        ),
        (
            "pipeline: p\nhosts: []\nshares: {t: {minimun: 2}}",
            ": shares.t.minimun: unknown key; did you mean minimum? known keys: maximum, minimum, spare, t",
        ),
        (
            f"pipeline: p\nhosts: [{HOST[:-1]}, colour: red}}]",
            ": hosts.0.colour: unknown key; known keys: address, capacity, cores, labels, name, network, ",
        ),
        ("pipeline: p\nhosts: []\npartitions: !!int four", ": not YAML: 'four' is not a valid value: "),
        (
            "pipeline: p\nhosts: []\nrepair: 2020-99-99",
            ": not YAML: '2020-99-99' is not a valid value: month must be in 1..12",
        ),
        (
            "pipeline: p\nhosts: []\nshifts: {night: {schedule: 0 22 * * *, timezone: Europe}}",
            ": shifts.night.timezone: 'Europe' is not a time zone: write a name such as ",
        ),
        ("pipeline: ''\nhosts: []", ": pipeline: "),
        *(
            (f"pipeline: p\nhosts: []\nscaler: {scaler}", f": scaler.{reason}")
            for scaler, reason in (
                (
                    "{defaults: {mode: on}}",
                    "defaults.mode: write act, advise or off; YAML reads on, yes and true as one value",
                ),
                ("{tiers: {t: {mode: loud}}}", "tiers.t.mode: Input should be 'off', 'advise' or 'act'"),
                ("{tiers: {t: {modes: act}}}", "tiers.t.modes: unknown key; did you mean mode? known keys: "),
                ("{tiers: {t: act}}", "tiers.t: write keys and values below this key"),
                (
                    "{tiers: {t: {utilisation: 0.9}}}",
                    "tiers.t: the band from 0.75 to 1.05 (utilisation 0.9 with band 0.15) is not between ",
                ),
                (
                    "{defaults: {band: 0.05}, tiers: {t: {utilisation: 0.05}}}",
                    "tiers.t: the band from 0.00 to 0.10 (utilisation 0.05 with band 0.05) is not between ",
                ),
                (
                    "{defaults: {grow_after: 700}}",
                    "defaults: grow_after of 700 is above shrink_after of 600: ",
                ),
                ("{defaults: {changes_per_hour: 2}}", "defaults.changes_per_hour: Input should be "),
                ("{tiers: {t: {catch_up: 1}}}", "tiers.t.catch_up: Input should be "),
            )
        ),
        (
            "pipeline: p\nhosts: []\npartitions: 999999999",
            ": partitions: Input should be less than or equal to 1000; the value is 999999999",
        ),
        (
            "pipeline: p\nhosts: []\nreboot: systemctl",
            ": reboot: write a list, such as [a, b]; the value is 'systemctl'",
        ),
        ("pipeline: p\nhosts: []\nalerts: {smtp: mail}", ": alerts.smtp: "),
        ("pipeline: p\nhosts: []\nalerts: {webhook: 'ftp://x'}", ": alerts.webhook: "),
        ("pipeline: p\nhosts: []\nalerts: {webhook: 'conn:a b'}", ": alerts.webhook: "),
        ("pipeline: p\nhosts: []\nalerts: {smtp: 'conn:'}", ": alerts.smtp: "),
        (
            f"pipeline: p\nhosts: [{HOST.replace('127.0.1.1', 'no address!')}]",
            ": hosts.0.address: 'no address!' is not an address: write the address by which other hosts ",
        ),
        (
            f"pipeline: p\nhosts: [{HOST.replace('h1', 'H 1')}]",
            ": hosts.0.name: 'H 1' is not a host's name: write small letters",
        ),
        (
            f"pipeline: p\nhosts: [{HOST.replace('1g', 'true')}]",
            ": hosts.0.capacity.memory: True is not a size",
        ),
        (
            f"pipeline: p\nhosts: [{HOST[:-1]}, cores: mine}}]",
            ": hosts.0.cores: Input should be 'shared' or 'own'",
        ),
        ("- pipeline", ": write keys such as `pipeline:` and `hosts:`; the file contains a list"),
    ],
)
def test_an_unusable_value_is_refused_with_its_key(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    assert refused(path).startswith(reason)


@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        ("{target: 20}", (1, 20, 20)),
        ("{minimum: 3}", (3, 3, 16)),
        ("{target: 0, maximum: 2}", (0, 0, 2)),
        ("{maximum: 0}", (0, 0, 0)),
        ("{target: 80%, maximum: 20}", (1, "80%", 20)),
        ("{}", (1, 1, 16)),
    ],
)
def test_missing_numbers_of_a_share_follow_from_the_written_ones(
    tmp_path: Path, written: str, numbers: tuple[int | str, ...]
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"pipeline: p\nhosts: []\nshares: {{t: {written}}}")
    share = load(path).shares["t"]
    assert (share.minimum, share.target, share.maximum) == numbers


@pytest.mark.parametrize("schedule", ["0 22 * * *", "*/5 8-18 * * mon-fri", "0 0 29 2 *"])
def test_a_valid_schedule_is_accepted(tmp_path: Path, schedule: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        f"pipeline: p\nhosts: []\nshifts: {{night: {{schedule: '{schedule}', timezone: Europe/Bucharest}}}}"
    )
    assert load(path).shifts["night"].schedule == schedule


def test_a_place_without_a_host_is_named(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    host = "{name: h1, address: 127.0.1.1, rack: r1, labels: [gpu], capacity: {cpu: 1, memory: 1g}}"
    places = "locality: {t: 'rack:r1', u: 'rack:r2', v: h1}\ndedicated: {'label:gpu': [t], 'label:gpus': [t]}"
    path.write_text(f"pipeline: p\nhosts: [{host}]\n{places}")
    known = "known places: h1, label:gpu, rack:r1, zone:onprem"
    assert unmatched_places(load(path)) == [
        f"locality.u: no host of the site file is at rack:r2; {known}",
        f"dedicated: no host of the site file is at label:gpus; {known}",
    ]


def test_a_pin_that_another_key_forbids_is_named(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    host = "{name: h1, address: 127.0.1.1, rack: r1, capacity: {cpu: 1, memory: 1g}}"
    keys = (
        "shares: {t: {target: 2}, u: {target: 1, spare: 1}}\nlocality: {v: 'rack:r2', w: 'rack:r1'}\n"
        "spread: {u: {host: 1}}\ndedicated: {h1: [t, u, v]}\n"
        "pinned: {t: {h1: 2}, u: {h1: 2}, v: {h1: 1, h9: 1}, w: {h1: 1}, x: {h8: 2}}"
    )
    path.write_text(f"pipeline: p\nhosts: [{host}]\n{keys}")
    assert unmatched_places(load(path)) == [
        "locality.v: no host of the site file is at rack:r2; known places: h1, rack:r1, zone:onprem",
        "pinned.v: no host of the site file is at h9; known places: h1, rack:r1, zone:onprem",
        "pinned.x: no host of the site file is at h8; known places: h1, rack:r1, zone:onprem",
        "pinned.u: 2 on h1, but spread.u allows 1 on a host",
        "pinned.v: 2 workers, but shares.v has 1",
        "pinned.v: h1 is not at rack:r2, where locality.v has the tier",
        "pinned.w: h1 is dedicated to t, u, v",
        "pinned.x: 2 workers, but shares.x has 1",
    ]
    path.write_text("pipeline: p\nhosts: []\npinned: {t: {h1: 0}}")
    assert "pinned" in refused(path)


def test_a_repeated_key_is_refused_with_its_line_and_merges_are_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("pipeline: p\nhosts: []\nshares:\n  t: {target: 1}\n  u: {target: 1}\n  t: {target: 2}\n")
    assert refused(path) == ": line 6: the key t is already in line 4; remove one of them"
    merged = "t: &t {target: 2, maximum: 4}\n  u: &u {<<: *t, target: 3}\n  v: {<<: *u, target: 4}"
    path.write_text(f"pipeline: p\nhosts: []\nshares:\n  {merged}\n")
    assert [share.target for share in load(path).shares.values()] == [2, 3, 4]


@pytest.mark.parametrize(
    "line",
    [
        "alerts: {channels: [{url: 'slack 7391'}]}",
        "alerts: {channels: [{url: 'slack://7391', severity: high}]}",
        "alerts: {channels: ['slack://7391']}",
        "alerts: {webhook: 7391}",
        "s3: {endpoint: 's3://me:7391@minio'}",
        "password: 7391",
    ],
)
def test_a_refusal_does_not_repeat_values_that_may_be_secret(tmp_path: Path, line: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"pipeline: p\nhosts: []\n{line}")
    assert "7391" not in refused(path)


def test_channels_of_alerts_have_names_and_hide_their_urls(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    channels = "[{url: 'slack://7391'}, {url: 'slack://7392'}, {url: 'json://x', name: ops}]"
    path.write_text(f"pipeline: p\nhosts: []\nalerts: {{channels: {channels}}}")
    alerts = load(path).alerts
    assert list(alerts.by_name) == ["slack", "slack-2", "ops"]
    assert alerts.by_name["slack-2"].url.get_secret_value() == "slack://7392"
    assert "739" not in repr(alerts)


def test_a_file_without_text_or_without_access_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_bytes(b"pipeline: \xff\xfe")
    assert refused(path).startswith(": not YAML")
    assert refused(tmp_path).endswith(
        f" cannot read {tmp_path}: Is a directory; make the file readable for this user"
    )
    assert refused(tmp_path / "none.yaml").startswith(" does not exist: run this in the folder of a project")


def test_the_file_is_checked_again_only_after_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("pipeline: first\nhosts: []")
    first = load(path)
    assert load(path) is first
    path.write_text("pipeline: later\nhosts: []")
    assert load(path).pipeline == "later"
