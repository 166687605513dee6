"""Whatever a job is given: a template that AWS can take, or one ValueError in plain words."""

from __future__ import annotations

import tempfile
from typing import Any, Final

from aws_cdk import App, Duration, Environment, Stack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdk_blackwell import (
    Capacity,
    Foundation,
    LargeShardedJob,
    MidModelJob,
    ModelShape,
    RecipeOverrides,
    SmallModelJob,
)
from cdk_blackwell.compliance.service_model import check_training_request
from tests.jobs.examples import PLAN, REGION, ZONE, request_of

TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=30)
PROPS: Final[dict[str, Any]] = {
    "model": st.sampled_from(["llama-3.2-1b", "llama-3.1-8b", "qwen2.5-32b"]).map(
        ModelShape.preset
    ),
    "sequence_length": st.sampled_from([1024, 8192, 8191, 131_072, 0, -1]),
    "global_batch_tokens": st.sampled_from([None, 1_048_576, 4_194_304, 1000, 0]),
    "train_tokens": st.sampled_from([None, 10**9, 10**13, 0, 10**30]),
    "dataset_prefix": st.one_of(st.sampled_from(["tokens/", "a/b", "", "/"]), TEXT),
    "instance_count": st.sampled_from([None, 1, 2, 3, 4, 64, 65, 0, -1]),
    "max_attempts": st.sampled_from([1, 3, 999, 0, 1000]),
    "max_runtime": st.sampled_from([None, 59, 3600, 86_400, 28 * 86_400 + 1]).map(
        lambda seconds: None if seconds is None else Duration.seconds(seconds)
    ),
    "hourly_price_usd": st.sampled_from([None, 98.84, 0.0, -1.0, float("nan"), float("inf")]),
    "max_cost_usd": st.sampled_from([None, 1e9, 100.0, 0.0]),
    "waive_cost_ceiling": st.booleans(),
    "run_id": st.one_of(st.none(), st.just("2027-01-15-a"), TEXT),
    "job_name": st.one_of(st.none(), st.just("train"), TEXT),
    "environment": st.dictionaries(TEXT, TEXT, max_size=3),
    "checkpoint_interval": st.sampled_from([0, 60, 900]).map(Duration.seconds),
    "log_interval_steps": st.sampled_from([0, 1, 10]),
    "overrides": st.builds(
        RecipeOverrides,
        precision=st.sampled_from([None, "bf16", "fp8"]),
        micro_batch_size=st.sampled_from([None, 1, 3, 0]),
        activation_checkpointing=st.sampled_from([None, "full", "every:2", "every:0", "some"]),
    ),
}


@st.composite
def capacities(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of one factory; what it refuses is refused as a job's would be."""
    seconds = draw(st.sampled_from([60, 1800, 86_400, 10**9]))
    return {
        "kind": draw(st.sampled_from(["on_demand", "plan", "spot", "warm"])),
        "duration": Duration.seconds(seconds),
    }


def capacity_of(kind: str, duration: Duration) -> Capacity:
    if kind == "plan":
        return Capacity.training_plan(PLAN, max_pending=duration)
    if kind == "spot":
        return Capacity.spot(max_wait=duration)
    if kind == "warm":
        return Capacity.on_demand(keep_alive=duration)
    return Capacity.on_demand(max_pending=duration)


@given(
    kind=st.sampled_from([SmallModelJob, MidModelJob, LargeShardedJob]),
    # Few at a time are odd, so that many examples get as far as a template.
    odd=st.lists(st.sampled_from(sorted(PROPS)), max_size=3, unique=True),
    data=st.data(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_template_or_a_plain_refusal(
    kind: type[Any], odd: list[str], data: st.DataObject
) -> None:
    sizes = {SmallModelJob: "llama-3.2-1b", MidModelJob: "llama-3.1-8b"}
    props: dict[str, Any] = {
        "model": ModelShape.preset(sizes.get(kind, "qwen2.5-32b")),
        "dataset_prefix": "tokens/",
        "sequence_length": 8192,
        "packages_in_image": True,
        "waive_cost_ceiling": True,
        **{name: data.draw(PROPS[name], label=name) for name in odd},
    }
    capacity = data.draw(st.one_of(st.none(), capacities()), label="capacity")
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(App(outdir=folder), "Stack", env=Environment(region=REGION))
        foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
        try:
            if capacity is not None:
                props["capacity"] = capacity_of(**capacity)
            job = kind(stack, "Job", foundation=foundation, **props)
        except ValueError as error:
            text = str(error)
            assert text
            assert "\n" not in text
            assert "jsii" not in text.lower()
            return
        assert check_training_request(request_of(stack, run_id=job.run_id or "run-1")) == []
