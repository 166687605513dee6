"""The micro-batch follows measured memory, inside one start and from one start to the next."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell.planning.contracts import NO_SMALLER_BATCH
from cdk_blackwell.planning.predictions import predict_memory
from tests.training_scripts.tiny import GLOBAL_SEQUENCES, tiny_spec
from trainer import batch_growth
from trainer.batch_growth import (
    LIMIT_FILE,
    SETTLING_STEPS,
    BatchGrowth,
    MemoryReading,
    predict_reserved,
)
from trainer.data import BatchPlan
from trainer.parallel import World

BUDGET_GIB = 10.0


class OnlyRank(World):
    """A world without messages."""

    def from_first(self, value: Any) -> Any:
        return value


@dataclass
class Machine:
    """A run on one GPU whose allocator's numbers are scripted."""

    folder: Path
    patch: pytest.MonkeyPatch
    reserved: dict[int, float] = field(default_factory=dict)
    """GiB by micro-batch; empty on a CPU."""
    retries: int = 0
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def start(self, *, sizes: tuple[int, ...] = (1, 2, 4), resumed: int | None = None) -> None:
        first, *growth = sizes
        spec = tiny_spec(recipe={"micro_batch_size": first, "batch_growth": tuple(growth)})
        self.patch.setattr(batch_growth, "read_memory", lambda _: self.read())
        plan = BatchPlan.make(global_sequences=GLOBAL_SEQUENCES, micro_batch_size=first, ranks=1)
        self.growth: BatchGrowth | None = None
        self.growth = BatchGrowth(
            spec,
            spec.layout,
            plan,
            OnlyRank(rank=0, size=1, device=torch.device("cpu")),
            self,  # type: ignore[arg-type]
            folder=self.folder,
            resumed=resumed,
        )

    def event(self, name: str, **details: Any) -> None:
        self.events.append((name, details))

    def read(self) -> MemoryReading | None:
        size = self.growth.size if self.growth else min(self.reserved, default=0)
        if not self.reserved:
            return None
        return MemoryReading(
            reserved_gib=self.reserved[size], budget_gib=BUDGET_GIB, retries=self.retries
        )

    def train(self, steps: int) -> list[int]:
        """Sizes after each step."""
        assert self.growth
        sizes = []
        for _ in range(steps):
            self.growth.after_step()
            sizes.append(self.growth.size)
        return sizes

    @property
    def size(self) -> int:
        assert self.growth
        return self.growth.size

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    @property
    def limit(self) -> int:
        return int(json.loads((self.folder / LIMIT_FILE).read_text())["micro_batch_size"])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_the_batch_grows_step_by_step_once_memory_has_settled(machine: Machine) -> None:
    machine.reserved = {1: 2.0, 2: 3.0, 4: 5.0}
    machine.start()
    assert machine.train(3 * SETTLING_STEPS) == [1, 1, 2, 2, 2, 4, 4, 4, 4]
    assert machine.names == ["batch_grown", "batch_grown"]
    assert machine.events[1][1]["predicted_reserved_gib"] == 5.0


def test_it_stays_where_the_next_size_is_predicted_not_to_fit(machine: Machine) -> None:
    machine.reserved = {1: 2.0, 2: 5.0}
    machine.start()
    assert set(machine.train(20)[6:]) == {2}
    name, said = machine.events[-1]
    assert (name, said["refused"], said["predicted_reserved_gib"]) == ("batch_growth_ended", 4, 11)


@given(
    static=st.floats(0, 100),
    slope=st.floats(0.1, 20),
    sizes=st.sets(st.integers(1, 64), min_size=3, max_size=3).map(sorted),
)
def test_predictions_are_exact_where_memory_is_affine(
    static: float, slope: float, sizes: list[int]
) -> None:
    one, two, three = sizes
    measured = {size: static + slope * size for size in (one, two)}
    predicted = predict_reserved(measured, three, lambda size: slope / 2 * size)
    assert predicted == pytest.approx(static + slope * three)


def test_a_first_size_is_extrapolated_by_the_planners_own_slope() -> None:
    spec = tiny_spec()
    planned = {
        size: predict_memory(
            spec.model, spec.layout, tiny_spec(recipe={"micro_batch_size": size}).recipe
        ).reserved_gib
        for size in (2, 4)
    }
    got = predict_reserved({2: 7.0}, 4, planned.__getitem__)
    assert got == pytest.approx(7.0 + planned[4] - planned[2])
    assert got > 7.0


def test_a_flat_measurement_does_not_hide_what_the_planner_knows() -> None:
    """What loading a checkpoint reserved makes the first size look as large as the second."""
    assert predict_reserved({1: 6.0, 2: 6.0}, 4, lambda size: 2.0 * size) == 10.0


def test_sizes_that_do_not_divide_a_ranks_share_are_left_out(machine: Machine) -> None:
    machine.reserved = {1: 1.0, 3: 1.0, 4: 1.0}
    machine.start(sizes=(1, 3, 4))
    assert machine.train(2 * SETTLING_STEPS)[-1] == 4


def test_allocator_retries_take_the_last_growth_back_for_good(machine: Machine) -> None:
    machine.reserved = {1: 2.0, 2: 3.0, 4: 5.0}
    machine.start()
    machine.train(2 * SETTLING_STEPS)
    machine.retries = 3
    assert machine.train(4 * SETTLING_STEPS)[-1] == 2
    assert machine.names == ["batch_grown", "batch_grown", "batch_shrunk"]


def test_retries_at_the_first_size_go_below_it_and_at_one_are_only_told(machine: Machine) -> None:
    machine.reserved = {1: 2.0, 2: 9.0}
    machine.start(sizes=(2,))
    machine.retries = 1
    assert machine.train(SETTLING_STEPS)[-1] == 1
    machine.retries = 2
    assert machine.train(SETTLING_STEPS)[-1] == 1
    assert machine.names == ["batch_shrunk", "memory_scarce"]


def test_the_size_survives_a_resume(machine: Machine) -> None:
    machine.reserved = {1: 2.0, 2: 3.0, 4: 9.9}
    machine.start(resumed=2)
    assert machine.size == 2
    machine.start(resumed=3)
    assert machine.size == 2, "the largest of the run's sizes that is not above the checkpoint's"


@pytest.mark.parametrize(
    ("sizes", "resumed", "limit"), [((1, 2, 4), 4, 2), ((4,), None, 2), ((2, 4), None, 1)]
)
def test_out_of_memory_lowers_the_next_start(
    machine: Machine, sizes: tuple[int, ...], resumed: int | None, limit: int
) -> None:
    machine.reserved = dict.fromkeys((1, 2, 4), 1.0)
    machine.start(sizes=sizes, resumed=resumed)
    assert machine.growth
    error = machine.growth.out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB"))
    assert error.kind == "out_of_memory"
    assert f"the next start uses {limit}" in str(error)
    assert NO_SMALLER_BATCH not in str(error), "by these words the controller gives up"
    assert "Tried 2 GiB" in str(error)
    assert machine.limit == limit

    machine.start(sizes=sizes, resumed=resumed)
    assert machine.size == limit
    assert machine.train(3 * SETTLING_STEPS)[-1] == limit
    assert machine.names == ["batch_growth_limited"]


def test_one_sequence_that_does_not_fit_leaves_no_limit(machine: Machine) -> None:
    machine.reserved = {1: 1.0}
    machine.start()
    assert machine.growth
    error = machine.growth.out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert NO_SMALLER_BATCH in str(error)
    assert not (machine.folder / LIMIT_FILE).exists()


@pytest.mark.parametrize("text", ["", "{}", '{"micro_batch_size": 0}', '{"micro_batch_size": "x"}'])
def test_a_damaged_limit_counts_as_none(machine: Machine, text: str) -> None:
    machine.reserved = {1: 1.0}
    (machine.folder / LIMIT_FILE).write_text(text)
    machine.start()
    assert not machine.events


def test_a_cpu_says_that_it_cannot_measure(machine: Machine) -> None:
    machine.start(resumed=2)
    assert machine.names == ["batch_growth_off"]
    assert machine.train(20) == [2] * 20


def test_a_cpu_says_nothing_where_nothing_was_to_grow(machine: Machine) -> None:
    machine.start(sizes=(2,))
    assert not machine.events
