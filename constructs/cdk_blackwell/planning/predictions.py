"""Memory and speed of a layout and a recipe: the two questions that the search asks."""

from __future__ import annotations

from dataclasses import dataclass

from cdk_blackwell.planning.efficiency import Efficiency
from cdk_blackwell.planning.memory import MemoryEstimate, estimate_memory
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import Layout, Recipe
from cdk_blackwell.planning.throughput import ThroughputEstimate, estimate_throughput


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A layout and a recipe with what is predicted for them."""

    layout: Layout
    recipe: Recipe
    memory: MemoryEstimate
    throughput: ThroughputEstimate

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Predicted."""
        return self.throughput.tokens_per_second_per_gpu


def predict_memory(model: ModelShape, layout: Layout, recipe: Recipe) -> MemoryEstimate:
    """GiB per GPU of the recipe's first micro-batch size."""
    sequences = recipe.global_batch_tokens // recipe.sequence_length
    return estimate_memory(
        model,
        tokens=recipe.micro_batch_size * recipe.sequence_length // layout.context_parallel,
        sequence_length=recipe.sequence_length,
        shard_gpus=layout.shard_gpus,
        context_parallel=layout.context_parallel,
        ulysses=layout.ulysses,
        tensor_parallel=layout.tensor_parallel,
        reshard_after_forward=layout.reshard_after_forward,
        gradient_sync=layout.gradient_sync,
        activation_checkpointing=recipe.activation_checkpointing,
        loss_chunks=recipe.loss_chunks,
        precision=recipe.precision,
        bf16_blocks=recipe.bf16_blocks(model.num_hidden_layers),
        compiled=recipe.compile,
        foreach_optimizer=recipe.optimizer.implementation == "foreach",
        accumulates=sequences > recipe.micro_batch_size * layout.data_parallel,
    )


def predict_throughput(
    model: ModelShape, layout: Layout, recipe: Recipe, efficiency: Efficiency | None
) -> ThroughputEstimate:
    """Tokens per second and GPU; ``efficiency`` None takes the published table's."""
    return estimate_throughput(model, layout=layout, recipe=recipe, efficiency=efficiency)


def predict(
    model: ModelShape, layout: Layout, recipe: Recipe, efficiency: Efficiency | None = None
) -> Candidate:
    """Both at once."""
    return Candidate(
        layout=layout,
        recipe=recipe,
        memory=predict_memory(model, layout, recipe),
        throughput=predict_throughput(model, layout, recipe, efficiency),
    )
