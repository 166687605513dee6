"""A pipeline that tries, asks, then trains: deploy, trial, a person's yes, the run with the winner.

A plain CodePipeline and not CDK Pipelines, because the last step synthesises again, with the
trial's report, so that the run follows what was measured. Written as if pushed from a fork of this
repository; elsewhere APP is what your cdk.json names, and the install commands are yours. Deploy
both stacks once by hand and upload the dataset before the first push. Ids come from the execution,
since none is used twice; a push while a run is on is refused at Trial.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_codepipeline as codepipeline
from aws_cdk import aws_codepipeline_actions as actions
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_blackwell import Capacity, Foundation, ModelShape, SmallModelJob, TrialReport

CONNECTION = (
    "arn:aws:codeconnections:us-west-2:123456789012:connection/00000000-0000-0000-0000-000000000000"
)
APP = "python examples/pipeline/app.py"
REPORT = Path("trial.json")
DEPLOY = f"npx cdk deploy Training --require-approval never --app '{APP}'"
RUN = '"${EXECUTION%%-*}"'  # The first of an execution id's groups: eight hexadecimal digits.
JOB = "pretrain"
MAX_COST_USD = 8_500


class TrainingStack(Stack):
    """A 1B model; a trial's report decides what is left open, once there is one."""

    def __init__(self, scope: Construct, construct_id: str, **props: Any) -> None:
        super().__init__(scope, construct_id, **props)
        self.job = SmallModelJob(
            self,
            "Train",
            job_name=JOB,
            foundation=Foundation(self, "Foundation", availability_zone="us-west-2b"),
            model=ModelShape.preset("llama-3.2-1b"),
            dataset_prefix="tokens",
            sequence_length=8192,
            train_tokens=20_000_000_000,
            measured=TrialReport.from_json(REPORT.read_text()) if REPORT.exists() else None,
            capacity=Capacity.on_demand(max_pending=Duration.hours(6)),
            max_runtime=Duration.hours(24),
            hourly_price_usd=113.93,
            max_cost_usd=MAX_COST_USD,
        )


def allow(project: codebuild.PipelineProject, action: str, resource: str) -> None:
    """One right for a step."""
    project.add_to_role_policy(iam.PolicyStatement(actions=[action], resources=[resource]))


class PipelineStack(Stack):
    """What a push starts."""

    def __init__(
        self, scope: Construct, construct_id: str, *, training: TrainingStack, **props: Any
    ) -> None:
        super().__init__(scope, construct_id, **props)
        source, report = codepipeline.Artifact("source"), codepipeline.Artifact("trial")
        deployed = self._step("Deploy", [DEPLOY])
        tried = self._step(
            "Trial",
            [f"cdk-blackwell trial try-{RUN} --stack Training --yes --json > {REPORT}"],
            keeps=str(REPORT),
        )
        trained = self._step(
            "Train",
            [
                f"cp $CODEBUILD_SRC_DIR_trial/{REPORT} .",
                DEPLOY,
                f"cdk-blackwell start {RUN} --stack Training --require-trial --yes",
            ],
        )
        for project in (deployed, trained):
            # The CDK's own roles do the deploying.
            allow(
                project,
                "sts:AssumeRole",
                self.format_arn(service="iam", region="", resource="role", resource_name="cdk-*"),
            )
        for project in (tried, trained):
            training.job.grant_start(project)
            training.job.grant_read_checkpoints(project)
            training.job.controller.table.grant(project, "dynamodb:GetItem", "dynamodb:Query")
            allow(
                project,
                "cloudformation:DescribeStacks",
                self._arn("cloudformation", "stack", "Training/*"),
            )
        allow(
            tried,
            "sagemaker:DescribeTrainingJob",
            self._arn("sagemaker", "training-job", f"{JOB}-*"),
        )
        execution = {
            "EXECUTION": codebuild.BuildEnvironmentVariable(
                value="#{codepipeline.PipelineExecutionId}"
            )
        }
        stages: dict[str, codepipeline.IAction] = {
            "Source": actions.CodeStarConnectionsSourceAction(
                action_name="Push",
                connection_arn=CONNECTION,
                owner="example",
                repo="training",
                branch="main",
                output=source,
            ),
            "Deploy": actions.CodeBuildAction(
                action_name="Deploy",
                project=deployed,
                input=source,
            ),
            "Trial": actions.CodeBuildAction(
                action_name="Trial",
                project=tried,
                input=source,
                outputs=[report],
                environment_variables=execution,
            ),
            "Approve": actions.ManualApprovalAction(
                action_name="Approve",
                additional_information=f"See {REPORT}; the run may cost {MAX_COST_USD:,} USD",
            ),
            "Train": actions.CodeBuildAction(
                action_name="Train",
                project=trained,
                input=source,
                extra_inputs=[report],
                environment_variables=execution,
            ),
        }
        pipeline = codepipeline.Pipeline(
            self,
            "Pipeline",
            use_pipeline_role_for_actions=True,
            pipeline_type=codepipeline.PipelineType.V2,
            # Two executions would deploy over each other.
            execution_mode=codepipeline.ExecutionMode.QUEUED,
            stages=[
                codepipeline.StageProps(stage_name=name, actions=[action])
                for name, action in stages.items()
            ],
        )
        # The CDK's action allows the service's old prefix alone; it must be that of the ARN.
        pipeline.add_to_role_policy(
            iam.PolicyStatement(actions=["codeconnections:UseConnection"], resources=[CONNECTION])
        )

    def _step(
        self, name: str, commands: list[str], keeps: str | None = None
    ) -> codebuild.PipelineProject:
        """A build in the pushed folder."""
        spec: dict[str, Any] = {
            "version": "0.2",
            "phases": {
                "install": {
                    "runtime-versions": {"python": "3.12", "nodejs": "22"},
                    "commands": ["pip install '.[cli]'", "npm ci", "cdk-blackwell vendor"],
                },
                "build": {"commands": commands},
            },
        }
        if keeps:
            spec["artifacts"] = {"files": [keeps]}
        return codebuild.PipelineProject(
            self,
            f"{name}Build",
            build_spec=codebuild.BuildSpec.from_object(spec),
            environment=codebuild.BuildEnvironment(
                build_image=codebuild.LinuxBuildImage.AMAZON_LINUX_2023_5
            ),
            timeout=Duration.hours(8),  # Six of a trial's for instances, one for the trial.
        )

    def _arn(self, service: str, resource: str, name: str) -> str:
        return self.format_arn(service=service, resource=resource, resource_name=name)


app = App()
place = Environment(account="123456789012", region="us-west-2")
PipelineStack(app, "Pipeline", training=TrainingStack(app, "Training", env=place), env=place)
app.synth()
