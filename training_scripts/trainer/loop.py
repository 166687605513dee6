"""The training loop: one optimizer step after the other until done or asked to stop."""

# ruff: noqa: N806 - suffixes of tensors name their dimensions
from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cdk_blackwell.planning.records import Progress, utc_timestamp
from cdk_blackwell.planning.run_spec import RunSpec
from trainer.batch_growth import BatchGrowth
from trainer.checkpoint import Checkpointer
from trainer.data import Batch, BatchPlan, SequenceReader, TrainingStream, validation_batches
from trainer.errors import TrainingError, user_error
from trainer.health import LossWatch
from trainer.layout import Meshes
from trainer.masking import counted_targets
from trainer.metrics import (
    Reporter,
    device_peak_flops,
    gpu_memory,
    model_flops_utilization,
)
from trainer.model import Decoder
from trainer.optimizer import learning_rate, set_learning_rate
from trainer.parallel import World
from trainer.precision import after_optimizer_step
from trainer.prediction_check import PredictionCheck
from trainer.progress import ProgressWriter
from trainer.rank_state import RankReporter
from trainer.sharding import clip_gradients, reshard, set_micro_batch
from trainer.signals import StopFlag, agree
from trainer.stopping import StepDropped, StopCheck, finish_current, may_save
from trainer.stragglers import StragglerWatch
from trainer.tensor_parallel import complete_gradients
from trainer.validation import held_out_loss


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the loop ended."""

    step: int
    stopped: bool
    """Ended early, by request; the newest complete checkpoint is where the next attempt begins."""
    abandoned_save: bool = False
    """The time to stop was over before a checkpoint was: its thread still runs."""


@dataclass(kw_only=True)
class Interval:
    """What has been gathered since the last metrics line."""

    losses: list[Tensor] = field(default_factory=list)
    """This rank's shares, of the steps that counted."""
    steps: int = 0
    started: float = field(default_factory=time.perf_counter)
    paused_seconds: float = 0.0
    """Spent on validation and checkpoints, which do not count as step time."""


@dataclass(kw_only=True)
class TrainingLoop:
    """State and parts of one attempt."""

    spec: RunSpec
    world: World
    meshes: Meshes
    plan: BatchPlan
    model: Decoder
    optimizer: torch.optim.Optimizer
    open_stream: Callable[[BatchPlan, int], TrainingStream]
    """Micro-batches from a number of completed steps on."""
    growth: BatchGrowth
    predictions: PredictionCheck
    health: LossWatch
    held_out: SequenceReader
    checkpointer: Checkpointer
    progress: ProgressWriter | None
    """Rank 0 only."""
    attempt: int
    report: Reporter
    stop: StopFlag
    ranks: RankReporter
    saves: bool = True
    """False in a trial, which leaves no checkpoint."""
    loss: float | None = None
    validation_loss: float | None = None
    gradient_norm: Tensor | None = None
    stepped_at: str | None = None
    checkpointed_at: str | None = None
    stream: TrainingStream = field(init=False)
    check: StopCheck = field(init=False)
    stragglers: StragglerWatch = field(init=False)

    def __post_init__(self) -> None:
        self.check = StopCheck(world=self.world, stop=self.stop)
        self.stragglers = StragglerWatch(self.world, self.report)

    def run(self, step: int) -> Outcome:
        """Train from ``step`` completed steps to the end."""
        total = self.spec.train_steps
        self.stream = self.open_stream(self.plan, step)
        self.ranks.start_at(step)
        self.predictions.predict(self.plan.micro_batch_size)
        if self.progress:
            self.progress.note(self.state(step))
        if step < total and agree(self.world.maximum, self.stop.requested)[0]:
            return self.leave(step)
        if step == 0 and not self.validate(step):
            return self.leave(step)
        interval = Interval()
        while step < total:
            rate = learning_rate(step + 1, total_steps=total, optimizer=self.spec.recipe.optimizer)
            began = time.perf_counter()
            batches = self.stream.next_step()
            try:
                share = self.train_step(batches, rate, step=step + 1)
            except StepDropped:
                return self.leave(step)
            if share is not None:
                interval.losses.append(share)
            interval.steps += 1
            step += 1
            self.stepped_at = utc_timestamp()
            self.ranks.advance(step)
            stop, save, writing, seconds = self.world.maximum(
                self.stop.requested,
                self.saves and self.world.is_first and self.checkpointer.interval_passed(),
                self.checkpointer.busy and not self.checkpointer.done,
                time.perf_counter() - began,
            )
            self.check.learn(step_seconds=seconds, micro_batches=len(batches))
            last = step == total
            if last or stop or step % self.spec.limits.log_interval_steps == 0:
                self.log(step, interval, rate)
                interval = Interval()
            started = time.perf_counter()
            if self.checkpointer.busy and not writing:
                self.settle(step)
            if stop and not last:
                return self.leave(step)
            if last:
                self.predictions.conclude(step)
            due = last or step % self.spec.limits.validation_interval_steps == 0
            if due and not self.validate(step) and not last:
                return self.leave(step)
            if last and self.saves:
                self.save_last(step)
            elif save:
                self.begin_save(step)
            elif self.progress:
                self.progress.note(self.state(step))
            interval.paused_seconds += time.perf_counter() - started
            if not last:
                self.fit_batch(step)
        self.stream.close()
        self.report.event("completed", step=step, tokens=self.tokens(step))
        return Outcome(step=step, stopped=False)

    def leave(self, step: int) -> Outcome:
        """Stop after ``step`` whole steps, with a checkpoint of them if there is time for one."""
        self.stream.close()
        self.predictions.conclude(step)
        if not self.saves:
            return Outcome(step=step, stopped=True)
        self.ranks.enter("saving")
        parts = (self.checkpointer, self.world, self.stop, self.report)
        finished = finish_current(*parts)
        if finished and self.checkpointer.busy:
            self.settle(step)
        # A save that failed has made room for another try.
        while finished and step > self.checkpointer.last_complete_step and may_save(*parts):
            self.begin_save(step)
            finished = finish_current(*parts)
            if finished:
                self.settle(step)
        saved = self.checkpointer.last_complete_step
        self.report.event("stopped", step=step, last_complete_step=saved)
        return Outcome(step=step, stopped=True, abandoned_save=not finished)

    def train_step(self, batches: list[Batch], rate: float, *, step: int) -> Tensor | None:
        """One optimizer step; returns this rank's share of the mean loss, still on the device.

        None when the step was left out for its loss: weights and moments are as they were.
        """
        set_learning_rate(self.optimizer, rate)
        share = torch.zeros((), device=self.world.device)
        layout = self.meshes.layout
        targets = self.spec.recipe.global_batch_tokens
        if self.stream.masked:
            targets = counted_targets(batches, self.world, copies=layout.tensor_parallel)
        for number, batch in enumerate(batches, start=1):
            if self.check.asked(number - 1):
                self.optimizer.zero_grad(set_to_none=True)
                reshard(self.model)
                raise StepDropped
            set_micro_batch(self.model, layout, last=number == len(batches))
            tokens_BS = batch.tokens_BS.to(self.world.device, non_blocking=True)
            targets_BS = batch.targets_BS.to(self.world.device, non_blocking=True)
            loss = self.model(tokens_BS, targets_BS) / targets
            # FSDP averages gradients over ranks, where the mean over all targets asks for a sum.
            (loss * (layout.shard_gpus * layout.replicas)).backward()
            # Tensor-parallel ranks compute the same loss: each accounts for its part.
            share += loss.detach() / layout.tensor_parallel
            self.ranks.beat()
        complete_gradients(self.model, self.meshes.tensor)
        norm = clip_gradients(
            self.model.parameters(), maximum_norm=self.spec.recipe.optimizer.gradient_clip_norm
        )
        if self.health.judges_each_step and not self.accept(step, share, norm):
            self.optimizer.zero_grad(set_to_none=True)
            return None
        self.gradient_norm = norm
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        after_optimizer_step(self.model, self.spec.recipe.precision)
        return share

    def accept(self, step: int, share: Tensor, norm: Tensor) -> bool:
        """Whether the step counts, by numbers on which all ranks agree to the last bit."""
        numbers = (float(self.world.total(share.clone())), float(norm))
        loss, largest = self.world.maximum(*(n if math.isfinite(n) else math.inf for n in numbers))
        return self.judge(step, loss, largest)

    def judge(self, step: int, loss: float, norm: float | None) -> bool:
        """Whether a loss is acceptable; one that ends the run is told to the controller first."""
        try:
            return self.health.accept(step, loss, norm)
        except TrainingError:
            self.loss = loss
            if self.progress:
                # Waited for, so that the alarm on such a loss learns of it.
                self.progress.write(self.state(step))
                self.progress.close()
            raise

    def losses(self, interval: Interval) -> list[float]:
        """Of an interval's steps that counted, over all ranks."""
        if not interval.losses:
            return []
        losses: list[float] = self.world.total(torch.stack(interval.losses)).tolist()
        return losses

    def fit_batch(self, step: int) -> None:
        """Go on with micro-batches of another size when memory asks for it or allows it."""
        size = self.growth.after_step()
        if size is None:
            return
        self.plan = self.plan.resized(size)
        self.stream.close()
        waited = self.stream.wait_seconds
        self.stream = self.open_stream(self.plan, step)
        self.stream.wait_seconds = waited
        self.predictions.predict(size)

    def tokens(self, step: int) -> int:
        """Tokens trained on after ``step`` steps."""
        return step * self.spec.recipe.global_batch_tokens

    def log(self, step: int, interval: Interval, rate: float) -> None:
        """Print the metrics line of an interval."""
        norm = float(self.gradient_norm) if self.gradient_norm is not None else None
        losses = self.losses(interval)
        if losses and not self.health.judges_each_step:
            before = step - len(losses)
            for number, loss in enumerate(losses, start=1):
                self.judge(before + number, loss, norm if number == len(losses) else None)
        self.loss = sum(losses) / len(losses) if losses else self.loss
        steps = interval.steps
        seconds = time.perf_counter() - interval.started - interval.paused_seconds
        tokens = steps * self.spec.recipe.global_batch_tokens
        rate_of_tokens = tokens / seconds
        memory = gpu_memory(self.world)
        waited = self.stream.wait_seconds / steps
        spread = self.stragglers.compare(step, data_wait_seconds=waited)
        self.report.metrics(
            step=step,
            loss=self.loss if losses else None,
            tokens=self.tokens(step),
            tokens_per_second=rate_of_tokens,
            mfu=model_flops_utilization(
                self.spec,
                tokens_per_second=rate_of_tokens,
                ranks=self.world.size,
                peak=device_peak_flops(self.spec, self.world),
            ),
            step_seconds=seconds / steps,
            data_wait_seconds=spread.data_wait_seconds,
            compute_spread=spread.compute,
            gradient_norm=norm,
            learning_rate=rate,
            **memory,
        )
        self.predictions.observe(step, tokens=tokens, seconds=seconds, memory=memory)
        self.stream.wait_seconds = 0.0

    def validate(self, step: int) -> bool:
        """Held-out loss, where there is held-out data; False where a stop broke it off."""
        sequences = self.spec.data.validation_sequences
        if sequences < 1 or not len(self.held_out):
            return True
        stopped = False

        def goes_on() -> bool:
            nonlocal stopped
            self.ranks.beat()
            stopped = agree(self.world.maximum, self.stop.requested)[0]
            return not stopped

        batches = validation_batches(
            self.held_out,
            sequences=sequences,
            micro_batch_size=self.plan.micro_batch_size,
            rank=self.meshes.data_rank,
            ranks=self.meshes.layout.data_parallel,
        )
        loss = held_out_loss(self.model, batches, self.world, goes_on=goes_on)
        reshard(self.model)
        if stopped:
            return False
        self.validation_loss = loss
        self.report.metrics(step=step, validation_loss=loss)
        return True

    def begin_save(self, step: int) -> None:
        """Copy what is to be saved; it is written while training goes on.

        A diverged model is refused, and this very step is never saved twice.
        """
        if self.checkpointer.last_complete_step == step:
            return
        norm = float(self.gradient_norm) if self.gradient_norm is not None else 0.0
        if not math.isfinite(norm):
            raise user_error(f"training diverged at step {step}: gradient norm {norm}")
        self.checkpointer.begin(
            self.model,
            self.optimizer,
            step=step,
            tokens=self.tokens(step),
            micro_batch_size=self.plan.micro_batch_size,
            recent_losses=self.health.recent,
        )

    def settle(self, step: int) -> None:
        """A checkpoint has been written on all ranks, or failed on all."""
        saved = self.checkpointer.settle()
        self.report.metrics(step=step, checkpoint_failures=self.checkpointer.failures)
        if saved is None:
            return
        self.ranks.saved(saved.marker.step)
        self.checkpointed_at = utc_timestamp()
        self.report.metrics(
            step=step,
            checkpoint_seconds=saved.seconds,
            checkpoint_blocked_seconds=saved.blocked_seconds,
        )
        self.report.event("checkpoint", step=saved.marker.step)
        if self.progress:
            self.progress.write(self.state(step))

    def save_last(self, step: int) -> None:
        """Nothing is left to do meanwhile: wait, and try again until too many saves have failed."""
        self.ranks.enter("saving")
        if self.checkpointer.busy:
            self.checkpointer.wait()
            self.settle(step)
        while self.checkpointer.last_complete_step != step:
            self.begin_save(step)
            self.checkpointer.wait()
            self.settle(step)

    def state(self, step: int) -> Progress:
        """What the controller is told."""
        return Progress(
            attempt=self.attempt,
            step=step,
            tokens=self.tokens(step),
            loss=self.loss,
            validation_loss=self.validation_loss,
            last_complete_step=self.checkpointer.last_complete_step,
            time=utc_timestamp(),
            stepped_at=self.stepped_at,
            checkpointed_at=self.checkpointed_at,
            metrics=dict(self.report.latest),
        )
