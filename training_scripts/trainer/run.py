"""A rank's whole life: join the others, build, resume, train, save, export, leave."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import NoReturn

import torch
from torch.distributed.checkpoint.api import CheckpointException

from cdk_blackwell.planning.contracts import CHANNEL_INITIAL_WEIGHTS, Tier
from cdk_blackwell.planning.records import Progress, utc_timestamp
from cdk_blackwell.planning.run_spec import Layout, RunSpec
from trainer.activation_checkpointing import apply_activation_checkpointing
from trainer.batch_growth import BatchGrowth
from trainer.checkpoint import Checkpointer
from trainer.compilation import compile_blocks
from trainer.completeness import newest_marked_step
from trainer.container import Container
from trainer.data import BatchPlan, TrainingStream
from trainer.dataset import check_export_package, open_dataset
from trainer.entry import EXIT_FAILED
from trainer.errors import TrainingError, classify, describe, user_error
from trainer.export import export
from trainer.gpu_stats import watch_gpu
from trainer.health import LossWatch, spec_in_use
from trainer.hugging_face_weights import load_hugging_face_weights
from trainer.layout import Meshes, check_layout, layout_in_use, make_meshes
from trainer.loop import Outcome, TrainingLoop
from trainer.metrics import Reporter
from trainer.model import Decoder, initialise
from trainer.optimizer import make_optimizer
from trainer.parallel import World, process_group
from trainer.precision import apply_precision, check_precision, use_tensor_cores
from trainer.prediction_check import PredictionCheck
from trainer.progress import ProgressWriter
from trainer.rank_state import RankReporter
from trainer.room import check_room
from trainer.sharding import shard, share_sequences
from trainer.signals import StopFlag
from trainer.tensor_parallel import split_tensors
from trainer.tensorboard import open_tensorboard
from trainer.trial_recorder import TrialRecorder


def leave_at_once(status: int) -> NoReturn:
    """End the process without any clean-up but that of its output."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run(
    tier: Tier,
    environment: Mapping[str, str],
    *,
    ranks: RankReporter,
    stop: StopFlag,
    leave: Callable[[int], int] = leave_at_once,
) -> int:
    """Train as ``run.json`` says; returns the exit status and leaves this rank's account.

    A failed rank first says why and then leaves at once: leaving the process group, or Python's
    own clean-up, may wait for ever for ranks that sit in a collective without this one.
    Expected mistakes print one line; anything else prints its traceback too.
    """
    try:
        container = Container.from_environment(environment)
        try:
            spec = container.read_run_spec()
        except ValueError as error:
            raise user_error(str(error)) from error
        if spec.tier != tier:
            raise user_error(f"run.json is of tier {spec.tier!r}; this entrypoint trains {tier!r}")
        with process_group(environment) as world:
            outcome = train(spec, container, world, stop=stop, ranks=ranks)
            if outcome.abandoned_save:
                # Its thread may sit in a message to another rank: nothing here waits for it.
                ranks.report("stopped")
                return leave(0)
    except (Exception, CheckpointException) as error:
        ranks.report("failed", kind=classify(error), message=describe(error))
        if not isinstance(error, TrainingError):
            traceback.print_exc()
        print(f"rank {ranks.rank}: {describe(error)}", file=sys.stderr, flush=True)
        return leave(EXIT_FAILED)
    ranks.report("stopped" if outcome.stopped else "finished")
    return 0


def train(
    spec: RunSpec, container: Container, world: World, *, stop: StopFlag, ranks: RankReporter
) -> Outcome:
    """Everything between joining and leaving the process group."""
    report = Reporter(world)
    trial = container.candidate
    board = None
    if world.is_first and trial:
        report.also_to(TrialRecorder(trial).put)
    elif world.is_first:
        board = open_tensorboard(container.output_data, warn=report.event)
    if board:
        report.also_to(board.put)
    gpu = watch_gpu(world, report)
    as_planned = spec
    spec = spec_in_use(spec, world, report, folder=container.checkpoints)
    layout, warning = layout_in_use(spec.layout, world)
    if warning:
        report.event("layout_adapted", reason=warning)
    check_layout(spec, layout, gpu=world.has_gpu)
    check_precision(spec.recipe.precision, device_capability(world))
    if world.has_gpu:
        use_tensor_cores()
    if trial is None:
        check_room(container.checkpoints, spec.model, world, warn=report.event)
    plan = plan_batches(spec, layout, report)
    progress = start_progress(spec, container, report) if world.is_first else None
    check_export_package(spec)
    dataset = open_dataset(spec, container, world, report, stop_requested=lambda: stop.requested)
    if dataset is None:
        return Outcome(step=0, stopped=True)
    meshes = make_meshes(layout, kind=world.device.type, rank=world.rank)
    if meshes.context is not None:
        positions = meshes.context.positions(spec.recipe.sequence_length)
        dataset.train.positions = dataset.held_out.positions = positions
    model = build_model(spec, meshes, world)
    optimizer = make_optimizer(model, spec.recipe.optimizer)
    checkpointer = Checkpointer(
        container.checkpoints,
        as_planned,
        world,
        dataset_sha256=dataset.manifest.content_sha256,
        warn=report.event,
    )
    health = LossWatch(spec, report, folder=container.checkpoints, writes=world.is_first)
    resumed = checkpointer.load_newest(model, optimizer)
    step = resumed.step if resumed else 0
    if resumed:
        health.restore(resumed.recent_losses)
        report.event("resumed", step=step, tokens=resumed.tokens, ranks_then=resumed.ranks)
    else:
        load_initial_weights(model, container, report)
    growth = BatchGrowth(
        spec,
        layout,
        plan,
        world,
        report,
        folder=container.checkpoints,
        resumed=resumed.micro_batch_size if resumed else None,
    )
    plan = plan.resized(growth.size)

    def open_stream(plan: BatchPlan, step: int) -> TrainingStream:
        return TrainingStream(
            dataset.train,
            plan,
            rank=meshes.data_rank,
            seed=spec.recipe.seed,
            consumed=step * plan.global_sequences,
            pin=world.has_gpu,
        )

    loop = TrainingLoop(
        spec=spec,
        world=world,
        meshes=meshes,
        plan=plan,
        model=model,
        optimizer=optimizer,
        open_stream=open_stream,
        growth=growth,
        predictions=PredictionCheck(spec, layout, world, report),
        health=health,
        held_out=dataset.held_out,
        checkpointer=checkpointer,
        progress=progress,
        attempt=container.attempt,
        report=report,
        stop=stop,
        ranks=ranks,
        saves=trial is None,
    )
    # Not in a finally clause: a failed rank says so first and then leaves without waiting.
    try:
        outcome = loop.run(step)
    except RuntimeError as error:
        # torch's own error for it, and what CUDA's libraries say when they find no memory.
        if classify(error) != "out_of_memory":
            raise
        raise growth.out_of_memory(error) from error
    if spec.checkpoint.export and not outcome.stopped:
        ranks.enter("exporting")
        export(
            model,
            folder=container.model,
            precision=spec.recipe.precision,
            dataset=dataset.folder,
            manifest=dataset.manifest,
            world=world,
        )
        report.event("exported", step=outcome.step)
    if gpu:
        gpu.close()
    if board:
        board.close()
    if progress:
        progress.close()
    return outcome


def load_initial_weights(model: Decoder, container: Container, report: Reporter) -> None:
    """Begin with the weights of channel ``initial_weights``, where the job has one.

    A run that goes on from a checkpoint has no use for them.
    """
    folder = container.channel(CHANNEL_INITIAL_WEIGHTS)
    if not folder.exists():
        return
    notes = load_hugging_face_weights(model, folder)
    report.event("initial_weights", channel=CHANNEL_INITIAL_WEIGHTS, notes=notes)


def start_progress(spec: RunSpec, container: Container, report: Reporter) -> ProgressWriter:
    """Keep ``progress.json`` fresh from here on, also while the start takes long.

    Until a checkpoint is loaded, the newest one that is marked complete says how far the run is.
    """
    progress = ProgressWriter(
        run_uri=container.run_uri,
        folder=container.output_data,
        warn=report.event,
        region=container.region,
    )
    step = newest_marked_step(container.checkpoints)
    progress.note(
        Progress(
            attempt=container.attempt,
            step=step,
            tokens=step * spec.recipe.global_batch_tokens,
            loss=None,
            validation_loss=None,
            last_complete_step=step,
            time=utc_timestamp(),
        )
    )
    return progress


def plan_batches(spec: RunSpec, layout: Layout, report: Reporter) -> BatchPlan:
    """Hold the global batch fixed and fit the micro-batch to the data-parallel ranks."""
    wanted = spec.recipe.micro_batch_size
    try:
        plan = BatchPlan.make(
            global_sequences=spec.global_batch_sequences,
            micro_batch_size=wanted,
            ranks=layout.data_parallel,
        )
    except ValueError as error:
        raise user_error(str(error)) from error
    if plan.micro_batch_size != wanted:
        report.event("micro_batch_adapted", wanted=wanted, used=plan.micro_batch_size)
    return plan


def device_capability(world: World) -> tuple[int, int] | None:
    """Compute capability of this rank's GPU; None on CPU."""
    return torch.cuda.get_device_capability(world.device) if world.has_gpu else None


def build_model(spec: RunSpec, meshes: Meshes, world: World) -> Decoder:
    """Construct without memory, shard, then fill each rank's part."""
    recipe = spec.recipe
    with torch.device("meta"):
        model = Decoder(spec.model, loss_chunks=recipe.loss_chunks)
    apply_precision(
        model,
        recipe.precision,
        emulate=not world.has_gpu,
        bf16_edge_blocks=recipe.bf16_edge_blocks,
    )
    split_tensors(model, meshes.tensor)
    share_sequences(model, meshes.context)
    apply_activation_checkpointing(model, recipe.activation_checkpointing)
    if recipe.compile and world.has_gpu:
        compile_blocks(model)
    shard(model, meshes, recipe.precision)
    model.to_empty(device=world.device)
    initialise(model, seed=recipe.seed)
    return model
