"""The demo's story, in order."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path

from cdk_blackwell.cli.demo import dataset, settings, verify
from cdk_blackwell.cli.demo.cloud import Cdk
from cdk_blackwell.cli.demo.screen import Phase, Screen, sparkline
from cdk_blackwell.cli.demo.settings import DemoFolders
from cdk_blackwell.cli.demo.summary import Summary
from cdk_blackwell.cli.demo.training import Attempt, RunWatcher, kill_workers
from cdk_blackwell.cli.errors import AwsRefusedError, CheckFailedError, CommandError
from cdk_blackwell.lifecycle.handler.definition import ControllerAnswer
from cdk_blackwell.local.aws import LocalAws, LocalAwsError
from cdk_blackwell.planning.contracts import STACK_OUTPUT_PREFIX, RunLocation, StackOutput
from cdk_blackwell.planning.model_shape import ModelShape

BAR_WIDTH = 12
"""With the phase's title, a line of progress fits 80 columns."""


class Demo:
    """One run of the demo; ``run`` leaves no process behind, however it ends."""

    def __init__(
        self, *, application: Path, folders: DemoFolders, model: ModelShape, screen: Screen
    ) -> None:
        self.application = application
        self.folders = folders
        self.model = settings.shrink(model)
        self.screen = screen
        self.summary = Summary()

    def run(self, *, port: int) -> None:
        """Run everything; raises CommandError with one clear message when a step fails.

        An earlier demo's results are replaced only once nothing stands in the way of this one.
        """
        check_port(port)
        try:
            self._lay_out()
        except OSError as error:
            raise CommandError(
                f"{self.folders.root} cannot be used as the demo's folder ({error.strerror}): name "
                "another with --directory"
            ) from error
        preparation = dataset.Preparation(
            output=self.folders.tokens, log=self.folders.logs / "prepare_data.log"
        )
        try:
            with self.screen.phase("embedded_aws", "Start the embedded AWS") as phase:
                aws = self._start_aws(port)
                phase.outcome = aws.endpoint_url
            with aws:
                self._use(aws, preparation)
            self._check_processes()
            self.summary.completed = True
        except BaseException as error:
            self.summary.error = str(error) or type(error).__name__
            raise
        finally:
            preparation.end()
            self.summary.requests = verify.received_requests(self.folders.aws_state)
            self.summary.seconds = self.screen.seconds
            self.summary.write(self.folders.summary)

    def _start_aws(self, port: int) -> LocalAws:
        try:
            return LocalAws(
                state_dir=self.folders.aws_state,
                port=port,
                region=settings.REGION,
                processes_per_host=settings.RANKS,
            )
        except LocalAwsError as error:
            raise CommandError(str(error)) from error

    def _lay_out(self) -> None:
        root = self.folders.root
        marker = root / settings.MARKER_FILE
        if root.exists() and any(root.iterdir()) and not marker.exists():
            raise CommandError(
                f"{root} holds something that is not an earlier demo: name an empty or new folder "
                "with --directory"
            )
        root.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(root).free
        if free < settings.FREE_DISK_BYTES:
            raise CommandError(
                f"{root} has {free / 1024**3:.1f} GiB free, the demo needs "
                f"{settings.FREE_DISK_BYTES / 1024**3:.0f}: free some, or name another folder with "
                "--directory"
            )
        shutil.rmtree(root)
        self.folders.logs.mkdir(parents=True)
        marker.write_text("Written by cdk-blackwell demo; the next run replaces this folder.\n")
        config = self.model.to_hugging_face_config()
        self.folders.model_config.write_text(json.dumps(config, indent=2) + "\n")
        self.summary.model = {"name": self.model.name, "parameters": self.model.parameter_count}

    def _use(self, aws: LocalAws, preparation: dataset.Preparation) -> None:
        cdk = Cdk(
            aws=aws,
            application=self.application,
            assembly=self.folders.assembly,
            logs=self.folders.logs,
        )
        with self.screen.phase("synth", "cdk synth of both stacks") as phase:
            wheelhouse = self.application / "wheelhouse"
            cdk.synth(settings.context(folders=self.folders, wheelhouse=wheelhouse), phase)
        with self.screen.phase("bootstrap", "cdk bootstrap") as phase:
            cdk.bootstrap(aws.account, settings.REGION, phase)
        foundation = self._deploy(cdk, settings.FOUNDATION_STACK)
        self._fill_dataset(aws, preparation, bucket=foundation["DatasetBucket"])
        outputs = self._deploy(cdk, settings.JOB_STACK)
        (job,) = (
            StackOutput.from_json(value)
            for name, value in outputs.items()
            if name.startswith(STACK_OUTPUT_PREFIX)
        )
        run = RunLocation(bucket=job.checkpoint_bucket, job=job.job, run_id=settings.RUN_ID)
        finished = self._train(aws, run)
        self.summary.controller_answer = _ask_status(aws, job.controller).to_dict()
        self.summary.s3_keys = [
            f"s3://{bucket}/{key}"
            for bucket in (job.dataset_bucket, run.bucket)
            for key in verify.list_keys(aws, bucket=bucket)
        ]
        self._speak(aws, run, finished)
        (vpc,) = (
            item["PhysicalResourceId"]
            for item in cdk.resources(settings.FOUNDATION_STACK)
            if item["ResourceType"] == "AWS::EC2::VPC"
        )
        with self.screen.phase("destroy", "cdk destroy of both stacks") as phase:
            cdk.destroy(phase)
        self._check_leftovers(aws, vpc=vpc)

    def _deploy(self, cdk: Cdk, stack: str) -> dict[str, str]:
        with self.screen.phase(f"deploy_{stack}", f"cdk deploy {stack}") as phase:
            outputs = cdk.deploy(stack, phase)
            types = Counter(item["ResourceType"] for item in cdk.resources(stack))
            phase.outcome = f"{sum(types.values())} resources of {len(types)} types"
        self.summary.stacks.append(stack)
        self.summary.resources[stack] = dict(sorted(types.items()))
        self.summary.resource_count += sum(types.values())
        return outputs

    def _fill_dataset(
        self, aws: LocalAws, preparation: dataset.Preparation, *, bucket: str
    ) -> None:
        with self.screen.phase("dataset", "Standard library as token shards") as phase:
            phase.detail("prepare_data.py has been running since the start")
            counts = dataset.token_counts(preparation.wait())
            total = sum(counts.values())
            if total < settings.MINIMUM_TOKENS:
                raise CommandError(
                    f"this Python's standard library gives {total:,} tokens, the demo needs "
                    f"{settings.MINIMUM_TOKENS:,}: is a stripped-down Python in use?"
                )
            dataset.upload(
                aws, folder=self.folders.tokens, bucket=bucket, prefix=settings.DATASET_PREFIX
            )
            phase.outcome = f"{total:,} tokens to s3://{bucket}"
        self.summary.dataset_tokens = counts

    def _train(self, aws: LocalAws, run: RunLocation) -> Attempt:
        watcher = RunWatcher(aws, run=run)
        try:
            with self.screen.phase("attempt_1", "Attempt 1") as phase:
                killed = self._until_killed(watcher, phase)
            self.screen.line(
                f"  [yellow]the demo killed the workers[/] near step {killed.step}; SageMaker says:"
            )
            self.screen.note(killed.failure_reason[:200])
            with self.screen.phase("attempt_2", "Attempt 2, resubmitted") as phase:
                finished = self._until_finished(watcher, phase, killed)
        finally:
            self.summary.take_attempts(list(watcher.attempts.values()))
        self._show_losses(watcher)
        return finished

    def _until_killed(self, watcher: RunWatcher, phase: Phase) -> Attempt:
        killed = False
        for attempt in watcher.poll():
            phase.detail(describe(attempt))
            if attempt.status == "Failed" and killed:
                phase.outcome = f"{attempt.step} steps, then {attempt.status}"
                return attempt
            if attempt.status != "InProgress":
                raise AwsRefusedError(f"attempt 1 ended too early: {attempt.failure_reason}")
            saved = watcher.progress().get("last_complete_step") or 0
            if not killed and saved > 0 and attempt.step >= settings.KILL_AFTER_STEP:
                container = self.folders.aws_state / "training-jobs" / attempt.name
                killed = bool(kill_workers(container))
        raise AssertionError("poll never ends by itself")

    def _until_finished(self, watcher: RunWatcher, phase: Phase, killed: Attempt) -> Attempt:
        for attempt in watcher.poll():
            if attempt.name == killed.name:
                phase.detail("waiting for the EventBridge event to reach the controller")
                continue
            phase.detail(describe(attempt))
            if attempt.status == "Completed":
                if attempt.resumed_from_step is None:
                    raise CheckFailedError(
                        f"{attempt.name} began afresh: no checkpoint was resumed"
                    )
                phase.outcome = (
                    f"resumed from step {attempt.resumed_from_step}, {attempt.step} steps done"
                )
                return attempt
            if attempt.status != "InProgress":
                raise AwsRefusedError(f"attempt 2 did not complete: {attempt.failure_reason}")
        raise AssertionError("poll never ends by itself")

    def _show_losses(self, watcher: RunWatcher) -> None:
        losses = [
            line["loss"] for attempt in watcher.attempts.values() for line in attempt.training_lines
        ]
        self.screen.line(f"  training loss   [cyan]{sparkline(losses, width=48)}[/]")
        for name, loss in self.summary.loss.items():
            self.screen.line(
                f"  {name:<10} loss {loss['first']:.3f} -> {loss['last']:.3f} nats per token "
                f"([green]{-100 * loss['fall']:+.0f} %[/])"
            )
        fall = self.summary.loss.get("validation", {}).get("fall", 0.0)
        if fall < settings.REQUIRED_LOSS_FALL:
            raise CheckFailedError(
                f"validation loss fell by {fall:.0%}; at least {settings.REQUIRED_LOSS_FALL:.0%} "
                "is expected, so the training is not right"
            )

    def _speak(self, aws: LocalAws, run: RunLocation, finished: Attempt) -> None:
        with self.screen.phase("export", "Export, reloaded by transformers") as phase:
            phase.detail("downloading")
            verify.download_export(aws, run=run, job_name=finished.name, folder=self.folders.export)
            phase.detail("generating")
            self.summary.generated_text = verify.generate(self.folders.export)
            phase.outcome = repr(self.summary.generated_text)

    def _check_leftovers(self, aws: LocalAws, *, vpc: str) -> None:
        with self.screen.phase("check", "Nothing is left running") as phase:
            self.summary.retained_then_removed = verify.remove_retained(aws, vpc=vpc)
            left = verify.left_running(aws, stacks=self.summary.stacks)
            self.summary.left_running = left
            if left:
                raise CheckFailedError(f"after cdk destroy there is still {', '.join(left)}")
            retained = len(self.summary.retained_then_removed)
            phase.outcome = f"{retained} retained things removed by hand"

    def _check_processes(self) -> None:
        deadline = time.monotonic() + 10
        while left := verify.live_processes(self.folders.aws_state):
            if time.monotonic() > deadline:
                self.summary.left_running = left
                raise CheckFailedError(
                    f"still running after the embedded AWS ended: {', '.join(left)}"
                )
            time.sleep(0.2)


def describe(attempt: Attempt) -> str:
    """One line on where an attempt is."""
    if not attempt.training_lines:
        return f"{attempt.name}: {attempt.secondary_status.lower()}"
    line = attempt.training_lines[-1]
    share = attempt.step / settings.STEPS
    filled = round(BAR_WIDTH * share)
    bar = "━" * filled + "╌" * (BAR_WIDTH - filled)
    return (
        f"{bar} step {attempt.step}/{settings.STEPS}  loss {line['loss']:.3f}  "
        f"{line['tokens_per_second']:,.0f} tokens/s"
    )


def _ask_status(aws: LocalAws, function: str) -> ControllerAnswer:
    payload = {"action": "status", "run_id": settings.RUN_ID}
    answer = aws.client("lambda").invoke(FunctionName=function, Payload=json.dumps(payload))
    value = json.loads(answer["Payload"].read())
    if answer.get("FunctionError"):
        raise AwsRefusedError(f"the controller failed on {payload}: {value}")
    return ControllerAnswer.from_dict(value)


def check_port(port: int) -> None:
    """A port that is already in use is refused before anything is touched."""
    with socket.socket() as probe:
        # As the server itself does: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CommandError(
                f"port {port} on localhost cannot be used ({error.strerror}): give another with "
                "--port, or 0 for a free one"
            ) from error


def check_tools(application: Path) -> None:
    """The repository's app and the tools that ``make setup`` brings must be there."""
    for name in ("app.py", "cdk.json", "stacks"):
        if not (application / name).exists():
            raise CommandError(
                f"{application} has no {name}: run the demo in a clone of the repository"
            )
    for tool in ("node", "cdk"):
        if shutil.which(tool) is None:
            raise CommandError(f"{tool} is not on the PATH: run 'make setup', then 'make demo'")
    major = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    if int(major.stdout.removeprefix("v").split(".")[0]) < 22:
        raise CommandError(
            f"node is {major.stdout.strip()}, the CDK needs 22 or newer: run 'make demo', which "
            "uses the one that 'make setup' installed"
        )
