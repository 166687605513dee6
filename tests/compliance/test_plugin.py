"""The rules in a real app: they stop synthesis, and can be acknowledged one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Acknowledgment, App, CfnResource, Stack, Validations

from cdk_blackwell.compliance.plugin import TrainingRules
from cdk_blackwell.compliance.rules import RULES
from tests.compliance.healthy import Body, healthy


def app_with(body: Body, folder: Path) -> App:
    app = App(outdir=str(folder / "out"))
    stack = Stack(app, "Others")
    for name, each in body["Resources"].items():
        made = CfnResource(stack, name, type=each["Type"], properties=each["Properties"])
        for attribute in set(each) - {"Type", "Properties"}:
            made.add_override(attribute, each[attribute])
    Validations.of(app).add_plugins(TrainingRules())
    return app


def report(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "out").glob("*validation-report.json")
    (plugin,) = json.loads(path.read_text())["pluginReports"]
    assert isinstance(plugin, dict)
    return plugin


def deleting_exports(resources: dict[str, Body]) -> None:
    resources["Export"]["Properties"]["S3"]["AutoExportPolicy"]["Events"] = ["DELETED"]


def test_a_healthy_app_synthesises(tmp_path: Path) -> None:
    app_with(healthy(), tmp_path).synth()


def test_an_error_stops_synthesis_and_says_why_and_what_to_do(tmp_path: Path) -> None:
    app = app_with(healthy(deleting_exports), tmp_path)
    with pytest.raises(RuntimeError, match="ValidationFailed: ERROR it exports DELETED events"):
        app.synth()
    text = json.dumps(report(tmp_path))
    rule = next(each for each in RULES if each.id == "ExportDeletions")
    for part in ("it exports DELETED events", rule.why, rule.fix, "Others/Export"):
        assert part in text


def test_a_warning_does_not_stop_it(tmp_path: Path) -> None:
    def eager(request: Body) -> None:
        del request["RetryStrategy"]

    app_with(healthy(change_request=eager), tmp_path).synth()
    assert "RetryStrategy" in json.dumps(report(tmp_path))


def test_a_rule_is_acknowledged_with_its_reason(tmp_path: Path) -> None:
    app = app_with(healthy(deleting_exports), tmp_path)
    Validations.of(app.node.find_child("Others")).acknowledge(
        Acknowledgment(id="cdk-blackwell::ExportDeletions", reason="scratch data only")
    )
    app.synth()


def test_only_the_given_rules_are_checked() -> None:
    plugin = TrainingRules([rule for rule in RULES if rule.id == "VolumeKey"])
    assert plugin.rule_ids == ["VolumeKey"]
