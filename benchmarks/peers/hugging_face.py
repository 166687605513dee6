"""Transformers' Llama and its Trainer."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import transformers
from torch import Tensor

from benchmarks.peers.clock import INTERVAL, Clocks, Speed, clocks, ends_of_intervals, speed
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import RunSpec


def llama(shape: ModelShape) -> Any:
    """Transformers' class of the same shape."""
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=shape.vocab_size,
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_hidden_layers=shape.num_hidden_layers,
            num_attention_heads=shape.num_attention_heads,
            num_key_value_heads=shape.num_key_value_heads,
            head_dim=shape.head_dim,
            max_position_embeddings=shape.max_position_embeddings,
            tie_word_embeddings=shape.tie_word_embeddings,
            attn_implementation="sdpa",
        )
    )


class Clock(transformers.TrainerCallback):  # type: ignore[misc]
    """When transformers' Trainer ended each step."""

    def __init__(self) -> None:
        self.ends: list[Clocks] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Note it."""
        self.ends.append(clocks())


def trainer(spec: RunSpec, batches: Tensor, root: Path) -> Speed:
    """Its defaults, but for batch, logging and checkpoints.

    ``batches`` are those of one rank; its sampler mixes the ranks' examples, which costs nothing.
    """
    rows = batches.flatten(0, 2)[:, :-1]
    clock = Clock()
    settings = transformers.TrainingArguments(
        output_dir=str(root),
        max_steps=len(batches),
        per_device_train_batch_size=batches.shape[2],
        gradient_accumulation_steps=batches.shape[1],
        use_cpu=True,
        report_to=[],
        logging_steps=INTERVAL,
        save_strategy="no",
        disable_tqdm=True,
        optim="adamw_torch_fused",
        ddp_find_unused_parameters=False,
    )
    with contextlib.redirect_stdout(io.StringIO()):
        transformers.Trainer(
            model=llama(spec.model),
            args=settings,
            train_dataset=[{"input_ids": row, "labels": row} for row in rows],
            callbacks=[clock],
        ).train()
    return speed(ends_of_intervals(clock.ends))
