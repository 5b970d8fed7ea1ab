"""Prometheus's rules, made from the catalogue."""

import re

from sluice_ops.planning.alerts.catalogue import ALERTS, AlertKind

HEADER = """\
# Alerts for Prometheus, made from sluice_ops.planning.alerts.catalogue:
#     python -m docs.site.alert_rules
# `summary` says what is wrong, `effect` what happens by itself, `action` what to do first.
groups:
  - name: sluice
    rules:
"""


def rules_file() -> str:
    """Return the content of the file of rules."""
    return HEADER + "".join(_rule(kind) for kind in ALERTS if kind.rule is not None)


def _rule(kind: AlertKind) -> str:
    name, expression = kind.rule or ("", "")
    lines = [f"      - alert: {name}", f"        expr: {expression}"]
    lines += [f"        for: {kind.wait:.0f}s"] if kind.wait else []
    lines += [
        "        labels:",
        f"          severity: {kind.severity}",
        "        annotations:",
        f"          summary: {_quoted(kind.happened)}",
        f"          effect: {_quoted(kind.did)}",
        f"          action: {_quoted(kind.do)}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a text as a string of YAML, with the places filled from the labels."""
    filled = re.sub(r"\{(\w+)\}", lambda found: _place(found[1]), text)
    return '"' + filled.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _place(name: str) -> str:
    return "{{ $value }}" if name == "value" else f"{{{{ $labels.{name} }}}}"
