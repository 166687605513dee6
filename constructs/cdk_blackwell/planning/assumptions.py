"""What a plan took for granted, and what a reader should know before trusting it."""

from __future__ import annotations

from cdk_blackwell.planning.following import contradictions
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.predictions import Candidate
from cdk_blackwell.planning.recipes import TOKENS_PER_PARAMETER
from cdk_blackwell.planning.request import Request
from cdk_blackwell.planning.wish import Wish

FEW_INSTANCES = 8
"""This project's reading of "a few" in the mid tier's recommendation."""


def list_assumptions(request: Request, wish: Wish, candidate: Candidate) -> tuple[str, ...]:
    """Defaults that stand for values which were not given."""
    found = []
    batch = candidate.recipe.global_batch_tokens
    if request.global_batch_tokens is None:
        found.append(
            f"global batch {batch:,} tokens: one micro-batch per data-parallel rank, because "
            "micro_batch_size was given and global_batch_tokens was not"
            if wish.global_batch_tokens is None
            else f"global batch {batch:,} tokens: near the 4M of Llama 2 (Touvron et al. 2023), "
            "a power of two of sequences per data-parallel rank"
        )
    if request.describes_a_run:
        found.append(
            "layout: what was not given is plain FSDP2's, because shard_gpus and micro_batch_size "
            "describe one run; leave out either and the rest is searched"
        )
    if request.measured is not None and not contradictions(request):
        found.append("layout and recipe: those of the trial's winner, which fix what was left open")
    if request.train_tokens is None:
        found.append(
            f"training length {wish.train_tokens:,} tokens: {TOKENS_PER_PARAMETER} per parameter, "
            "compute-optimal after Hoffmann et al. 2022; models made for use train much longer"
        )
    if request.instance_count is None and request.gpus is None:
        found.append(
            f"{plural(wish.gpus // P6_B200.gpus, 'instance')}: the fewest on which the plan fits"
            if candidate.memory.fits
            else f"{plural(wish.gpus // P6_B200.gpus, 'instance')}: the most there can be"
        )
    return tuple(found)


def list_warnings(request: Request, wish: Wish, candidate: Candidate) -> tuple[str, ...]:
    """What is planned all the same."""
    found = []
    different = contradictions(request)
    if different:
        found.append(
            "the trial's winner is not followed, only its efficiency is used: "
            + "; ".join(different)
        )
    model, batch = wish.model, candidate.recipe.global_batch_tokens
    if request.global_batch_tokens is None and request.overrides.micro_batch_size is not None:
        found.append(
            "micro_batch_size is given and global_batch_tokens is not, so the global batch is one "
            f"micro-batch per data-parallel rank: {batch:,} tokens a step. Give "
            "global_batch_tokens too"
        )
    if wish.sequence_length > model.max_position_embeddings:
        found.append(
            f"sequence_length {wish.sequence_length:,} is beyond the "
            f"{model.max_position_embeddings:,} positions that {model.name} was made for; its RoPE "
            "is used as it is"
        )
    if wish.train_tokens < batch:
        found.append(
            f"train_tokens {wish.train_tokens:,} is less than one global batch of {batch:,}: "
            "the run is one step"
        )
    instances = wish.gpus / P6_B200.gpus
    if request.gpus is not None and request.tier is None:
        tier = wish.tier
        if instances < tier.minimum_instances or instances > tier.maximum_instances:
            found.append(
                f"{wish.gpus} GPUs are a study: {tier.construct} runs on "
                f"{instances_of(tier.minimum_instances, tier.maximum_instances)}"
            )
    return tuple(found)


def instances_of(least: int, most: int) -> str:
    """Words for a tier's range of instances."""
    return plural(least, "instance") if least == most else f"{least} to {most} instances"


def plural(count: int, word: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
