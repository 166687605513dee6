"""Pictures of a plan: the right numbers, complete files, and no need of a network."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cdk_blackwell.cli.errors import CommandError
from cdk_blackwell.cli.main import app
from cdk_blackwell.cli.plan.charts.data import chart_data
from cdk_blackwell.cli.plan.charts.pictures import draw
from cdk_blackwell.cli.plan.charts.save import check_chart_file, save_chart
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import make_plan
from cdk_blackwell.planning.recipes import LayoutOverrides, RecipeOverrides

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

ARGUMENTS: dict[str, Any] = {
    "model": ModelShape.preset("llama-3.1-8b"),
    "sequence_length": 8192,
    "instance_count": 4,
}
PLAN = make_plan(**ARGUMENTS)
DATA = chart_data(PLAN, ARGUMENTS)


def test_one_column_is_the_plans_own() -> None:
    (chosen,) = [column for column in DATA.memory if column.chosen]
    assert chosen.micro_batch_size == PLAN.recipe.micro_batch_size
    assert chosen.parts_gib == PLAN.memory.parts_gib
    assert chosen.height_gib == pytest.approx(PLAN.memory.required_gib)


def test_columns_grow_to_just_past_the_budget() -> None:
    heights = [column.height_gib for column in DATA.memory]
    assert heights == sorted(heights)
    assert [height > DATA.budget_gib for height in heights].count(True) <= 1


def test_every_number_of_nodes_has_a_point_and_one_is_the_plans() -> None:
    assert {point.nodes for point in DATA.nodes} == {1, 2, 4, 8, 16, 32, 64}
    (chosen,) = [point for point in DATA.nodes if point.chosen]
    assert (chosen.nodes, chosen.shard_gpus) == (4, PLAN.layout.shard_gpus)


def test_without_a_price_the_cost_is_node_hours() -> None:
    assert not DATA.priced
    priced = {**ARGUMENTS, "hourly_price_usd": 100.0}
    dear = chart_data(make_plan(**priced), priced)
    assert dear.priced
    for point, free in zip(dear.nodes, DATA.nodes, strict=True):
        assert point.cost == pytest.approx(100 * free.cost)


def test_a_tier_of_one_node_has_one_point_within_its_axes() -> None:
    arguments: dict[str, Any] = {
        "model": ModelShape.preset("llama-3.2-1b"),
        "sequence_length": 8192,
    }
    data = chart_data(make_plan(**arguments), arguments)
    assert {point.nodes for point in data.nodes} == {1}
    speed = draw(data)["vconcat"][1]["hconcat"][0]["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert speed[0] < data.nodes[0].tokens_per_second < speed[1]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".html"])
def test_the_command_writes_a_complete_picture(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"plan{suffix}"
    words = ["plan", "--model", "llama-3.1-8b", "-s", "8k", "--nodes", "4", "--chart", str(target)]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    content = target.read_bytes()
    if suffix == ".png":
        assert content.startswith(b"\x89PNG")
        return
    text = content.decode()
    if suffix == ".svg":
        for word in ("budget 161.6 GiB", "chosen", "activations", "tokens/s", "node-hours"):
            assert word in text
    # Drawn by what is in the file.
    assert not re.findall(r"""(?:src|href)=["']https?:""", text)
    assert "cdn." not in text


@pytest.mark.parametrize("name", ["plan", "plan.gif", "plan.svg.txt"])
def test_another_suffix_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"must end in \.png, \.svg or \.html"):
        check_chart_file(tmp_path / name)


def test_a_place_that_cannot_be_written_is_refused_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="not a writable folder"):
        check_chart_file(tmp_path / "missing" / "plan.svg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(CommandError, match="it is a folder"):
        check_chart_file(tmp_path / "folder.svg")


def test_a_failing_disk_leaves_the_old_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "plan.svg"
    target.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(CommandError, match="No space left"):
        save_chart(draw(DATA), target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.svg"]


def test_without_its_extra_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(CommandError, match=r"pip install 'cdk-blackwell\[chart\]'"):
        check_chart_file(tmp_path / "plan.svg")


def test_a_margin_is_part_of_the_column() -> None:
    """Tensor parallel predictions must fit with their margin, so the picture shows it."""
    arguments = ARGUMENTS | {"layout": LayoutOverrides(tensor_parallel=2)}
    arguments |= {"overrides": RecipeOverrides(precision="bf16")}
    plan = make_plan(**arguments)
    (chosen,) = [column for column in chart_data(plan, arguments).memory if column.chosen]
    assert chosen.parts_gib["margin"] == plan.memory.margin_gib > 0
    assert chosen.height_gib == pytest.approx(plan.memory.required_gib)
