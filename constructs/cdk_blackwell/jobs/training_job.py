"""TrainingJob: what the three size tiers share, made to be subclassed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import jsii
from aws_cdk import Annotations, CfnOutput, CustomResource, Duration, Stack, Stage
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from cdk_blackwell.infrastructure.alarms import AlarmThresholds
from cdk_blackwell.infrastructure.capacity import Capacity
from cdk_blackwell.infrastructure.checkpoint_store import ICheckpointStore
from cdk_blackwell.infrastructure.dashboard import Predictions
from cdk_blackwell.infrastructure.file_system import ISharedFileSystem
from cdk_blackwell.infrastructure.foundation import IFoundation
from cdk_blackwell.infrastructure.job_security_group import JobSecurityGroup
from cdk_blackwell.infrastructure.monitoring import TrainingMonitoring
from cdk_blackwell.infrastructure.training_image import TrainingImage
from cdk_blackwell.infrastructure.training_role import TrainingRole
from cdk_blackwell.jobs.bundle import resolve_wheels, write_bundle
from cdk_blackwell.jobs.checks import (
    check_cost,
    check_environment,
    check_subnet,
    check_unique_job,
    default_job_name,
    normalise_dataset_prefix,
)
from cdk_blackwell.jobs.request import RequestInputs, build_request, check_definition
from cdk_blackwell.jobs.run_template import run_template
from cdk_blackwell.jobs.surroundings import distinct_keys, find_surroundings
from cdk_blackwell.lifecycle.handler.definition import JobDefinition, S3Object
from cdk_blackwell.lifecycle.run_controller import RunController
from cdk_blackwell.planning.contracts import (
    DATASET_MANIFEST_FILE,
    SCHEMA_VERSION,
    StackOutput,
    Tier,
    check_job_prefix,
    check_run_id,
    stack_output_name,
)
from cdk_blackwell.planning.metrics import METRICS
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import Plan, make_plan
from cdk_blackwell.planning.recipes import NO_OVERRIDES, RecipeOverrides

TOKENS_PER_SECOND: Final = next(m for m in METRICS if m.key == "tokens_per_second")


@jsii.implements(ec2.IConnectable)
class TrainingJob(Construct):
    """One training job on ml.p6-b200.48xlarge: plan, network, role, bundle, controller, run.

    Not used itself: a tier's class sets ``tier`` and may override ``check_model``,
    ``container_environment`` and ``request_template``.

    :param model: the model to train.
    :param foundation: network, file system, checkpoint store and key. Default: each of the
        parameters ``vpc``, ``subnet``, ``file_system`` and ``checkpoint_store`` is required.
    :param vpc: network of the job. Default: the foundation's.
    :param subnet: subnet of all instances, in the file system's zone. Default: the foundation's.
    :param file_system: shows the dataset. Default: the foundation's.
    :param checkpoint_store: receives runs. Default: the foundation's.
    :param encryption_key: encrypts exports and notifications. Default: the foundation's, else the
        checkpoint store's.
    :param asset_key: own key of the CDK's bootstrap bucket, which holds the bundle. Default: none,
        as the CDK bootstraps unless told to make one.
    :param dataset_prefix: key prefix in the dataset bucket that holds ``manifest.json``.
    :param sequence_length: tokens per sequence.
    :param global_batch_tokens: tokens per optimizer step over all GPUs.
    :param train_tokens: tokens to train on.
    :param instance_count: instances of 8 GPUs. Default: 1.
    :param capacity: where instances come from. Default: on demand, waiting up to 12 hours.
    :param max_runtime: longest time of one attempt. Default: 1 day.
    :param max_attempts: how often the controller may launch one run. Default: 3.
    :param hourly_price_usd: what one instance costs per hour. Default: unknown, cost is not shown.
    :param max_cost_usd: refuse when all attempts together can cost more. Default: no ceiling.
    :param run_id: change it to launch a new run. Default: define without launching.
    :param overrides: recipe values to replace, one at a time. Default: the tier's recipe.
    :param checkpoint_interval: time between checkpoints. Default: 15 minutes.
    :param validation_interval_steps: steps between validations. Default: 500.
    :param validation_sequences: held-out sequences per validation. Default: 64.
    :param log_interval_steps: steps between metrics lines. Default: 10.
    :param in_cluster_restarts: times torchrun restarts failed workers in place. Default: 1.
    :param export: write a Hugging Face export at the end. Default: yes.
    :param image: container image. Default: AWS's PyTorch 2.13 image for SageMaker.
    :param wheelhouse: folder with the wheels of ``requirements.lock``. Default: ``wheelhouse`` in
        the working directory.
    :param packages_in_image: the image holds the locked packages; no wheels travel. Default: no.
    :param environment: more environment variables for the container. Default: none.
    :param job_name: begins the names of training jobs and the job's prefix in S3, at most 22
        characters. Default: made from the construct's path.
    :param alarm_thresholds: when the job's alarms go off. Default: those of ``AlarmThresholds``.
    """

    tier: ClassVar[Tier]

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        model: ModelShape,
        dataset_prefix: str,
        sequence_length: int,
        global_batch_tokens: int,
        train_tokens: int,
        foundation: IFoundation | None = None,
        vpc: ec2.IVpc | None = None,
        subnet: ec2.ISubnet | None = None,
        file_system: ISharedFileSystem | None = None,
        checkpoint_store: ICheckpointStore | None = None,
        encryption_key: kms.IKey | None = None,
        asset_key: kms.IKey | None = None,
        instance_count: int = 1,
        capacity: Capacity | None = None,
        max_runtime: Duration | None = None,
        max_attempts: int = 3,
        hourly_price_usd: float | None = None,
        max_cost_usd: float | None = None,
        run_id: str | None = None,
        overrides: RecipeOverrides | None = None,
        checkpoint_interval: Duration | None = None,
        validation_interval_steps: int = 500,
        validation_sequences: int = 64,
        log_interval_steps: int = 10,
        in_cluster_restarts: int = 1,
        export: bool = True,
        image: TrainingImage | None = None,
        wheelhouse: str | None = None,
        packages_in_image: bool = False,
        environment: Mapping[str, str] | None = None,
        job_name: str | None = None,
        alarm_thresholds: AlarmThresholds | None = None,
    ) -> None:
        if not hasattr(type(self), "tier"):
            raise TypeError(
                "TrainingJob is not used itself: use SmallModelJob, or a subclass that sets tier"
            )
        super().__init__(scope, construct_id)
        stack = Stack.of(self)

        # Everything that can be refused is refused before a resource exists.
        if run_id is not None:
            check_run_id(run_id)
        self.check_model(model)
        self.model: ModelShape = model
        self.run_id: str | None = run_id
        self.capacity: Capacity = capacity or Capacity.on_demand()
        self.capacity.check(instance_count=instance_count, region=stack.region)
        self.instance_count: int = instance_count
        self.environment: dict[str, str] = check_environment(environment or {})
        self._max_runtime_seconds = int((max_runtime or Duration.days(1)).to_seconds())
        prefix = normalise_dataset_prefix(dataset_prefix)
        self.plan: Plan = make_plan(
            tier=self.tier,
            model=model,
            sequence_length=sequence_length,
            global_batch_tokens=global_batch_tokens,
            train_tokens=train_tokens,
            instance_count=instance_count,
            overrides=overrides or NO_OVERRIDES,
            hourly_price_usd=hourly_price_usd,
        )
        check_cost(
            capacity=self.capacity,
            max_runtime_seconds=self._max_runtime_seconds,
            max_attempts=max_attempts,
            instance_count=instance_count,
            hourly_price_usd=hourly_price_usd,
            max_cost_usd=max_cost_usd,
        )
        wheels = resolve_wheels(wheelhouse=wheelhouse, packages_in_image=packages_in_image)
        self.job_name: str = check_job_prefix(job_name or default_job_name(self))
        check_unique_job(self)

        around = find_surroundings(
            foundation,
            vpc=vpc,
            subnet=subnet,
            file_system=file_system,
            checkpoint_store=checkpoint_store,
            encryption_key=encryption_key,
        )
        self.vpc: ec2.IVpc = around.vpc
        self.subnet: ec2.ISubnet = around.subnet
        self.file_system: ISharedFileSystem = around.file_system
        self.checkpoint_store: ICheckpointStore = around.checkpoint_store
        self.encryption_key: kms.IKey | None = around.encryption_key
        check_subnet(stack, self.vpc, self.subnet, self.file_system)
        self.image: TrainingImage = image or TrainingImage.deep_learning_container(self)

        network = JobSecurityGroup(self, "Network", vpc=self.vpc, file_system=self.file_system)
        self.security_group: ec2.SecurityGroup = network.security_group
        self._connections = ec2.Connections(security_groups=[self.security_group])
        training_role = TrainingRole(
            self,
            "TrainingRole",
            job=self.job_name,
            checkpoint_store=self.checkpoint_store,
            encryption_keys=distinct_keys(
                self.checkpoint_store.encryption_key, self.encryption_key
            ),
            subnet=self.subnet,
            security_group=self.security_group,
            image=self.image,
            output_key=self.encryption_key,
        )
        self.role: iam.Role = training_role.role
        bundle = s3_assets.Asset(
            self,
            "Bundle",
            path=str(write_bundle(self._staging_folder(), wheels=wheels)),
            display_name="Training bundle",
        )
        self.monitoring: TrainingMonitoring = TrainingMonitoring(
            self,
            "Monitoring",
            job=self.job_name,
            tier=self.tier,
            thresholds=alarm_thresholds,
            max_cost_usd=max_cost_usd,
            encryption_key=self.encryption_key,
        )
        dataset_bucket = self.file_system.dataset_bucket
        manifest_key = f"{prefix}{DATASET_MANIFEST_FILE}"
        self.controller: RunController = RunController(
            self,
            "Controller",
            job=self.job_name,
            training_role=self.role,
            bundle_bucket=bundle.bucket,
            bundle_key=bundle.s3_object_key,
            checkpoint_bucket=self.checkpoint_store.bucket,
            dataset_bucket=dataset_bucket,
            dataset_manifest_key=manifest_key,
            encryption_keys=distinct_keys(
                self.checkpoint_store.encryption_key, dataset_bucket.encryption_key, asset_key
            ),
            monitoring=self.monitoring,
            topic_key=self.encryption_key,
        )
        self.dashboard: cloudwatch.Dashboard = self.monitoring.add_dashboard(Predictions.of(self.plan))
        run = run_template(
            job=self.job_name,
            plan=self.plan,
            train_tokens=train_tokens,
            checkpoint_interval_seconds=(checkpoint_interval or Duration.minutes(15)).to_seconds(),
            export=export,
            validation_interval_steps=validation_interval_steps,
            validation_sequences=validation_sequences,
            log_interval_steps=log_interval_steps,
            in_cluster_restarts=in_cluster_restarts,
        )
        self.definition: JobDefinition = JobDefinition(
            schema_version=SCHEMA_VERSION,
            job=self.job_name,
            request=self.request_template(
                RequestInputs(
                    job=self.job_name,
                    tier=self.tier,
                    region=stack.region,
                    image_uri=self.image.uri,
                    role_arn=self.role.role_arn,
                    subnet_id=self.subnet.subnet_id,
                    security_group_ids=[self.security_group.security_group_id],
                    file_system_id=self.file_system.file_system_id,
                    dataset_directory=self._dataset_directory(prefix),
                    output_key_arn=self.encryption_key.key_arn if self.encryption_key else None,
                    capacity=self.capacity,
                    instance_count=instance_count,
                    max_runtime_seconds=self._max_runtime_seconds,
                    environment=self.container_environment(),
                    tags={},
                )
            ),
            run=run,
            bundle=S3Object(bucket=bundle.s3_bucket_name, key=bundle.s3_object_key),
            checkpoint_bucket=self.checkpoint_store.bucket.bucket_name,
            dataset_manifest=S3Object(bucket=dataset_bucket.bucket_name, key=manifest_key),
            maximum_attempts=max_attempts,
            instance_count=instance_count,
            hourly_price_usd=hourly_price_usd,
        )
        check_definition(self.definition, run_id)
        self.run: CustomResource = self.controller.add_run(
            self,
            "Run",
            # json.dumps and not Stack.to_json_string: jsii would drop nulls and turn 1.0 into 1,
            # and no token in here resolves to text that needs escaping.
            definition=json.dumps(self.definition.to_dict(), separators=(",", ":")),
            run_id=run_id,
            # What a running job needs; every entry is there in every deploy.
            outlived_by=[network, training_role, *around.ready],
        )
        self._add_output()
        for index, warning in enumerate(self.plan.warnings):
            Annotations.of(self).add_warning_v2(f"cdk-blackwell:plan-{index}", warning)

    # --- For subclasses ---------------------------------------------------------------------------

    def check_model(self, model: ModelShape) -> None:
        """Raise ValueError for a model you do not want; the tier's limits the plan checks."""

    def container_environment(self) -> dict[str, str]:
        """Environment of the container beside the names this library sets itself."""
        return dict(self.environment)

    def request_template(self, inputs: RequestInputs) -> dict[str, Any]:
        """The CreateTrainingJob request; extend what ``super()`` returns."""
        return build_request(inputs)

    # --- For users of a job -----------------------------------------------------------------------

    @property
    def connections(self) -> ec2.Connections:
        """The job's own security group."""
        return self._connections

    def grant_start(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` start, stop and ask for runs, by invoking the controller."""
        return self.controller.function.grant_invoke(grantee)

    def grant_read_checkpoints(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` read this job's runs: checkpoints, progress and exports."""
        return self.checkpoint_store.grant_read(grantee, self.job_name)

    def metric_tokens_per_second(self, *, period: Duration | None = None) -> cloudwatch.Metric:
        """Training throughput over all GPUs, tokens per second, of whatever run is going on."""
        return self.monitoring.metric(TOKENS_PER_SECOND, period=period)

    def on_state_change(
        self,
        construct_id: str,
        *,
        target: events.IRuleTarget | None = None,
        statuses: Sequence[str] | None = None,
    ) -> events.Rule:
        """Rule on this job's SageMaker state changes.

        :param target: what to call. Default: none yet; add one to the returned rule.
        :param statuses: for example ``["Failed", "Completed"]``. Default: every status.
        """
        return self.controller.on_state_change(self, construct_id, target=target, statuses=statuses)

    # --- Parts of the constructor -----------------------------------------------------------------

    def _staging_folder(self) -> Path:
        stage = Stage.of(self)
        assert stage is not None
        return Path(stage.asset_outdir) / "staging" / f"bundle-{self.node.addr}"

    def _dataset_directory(self, prefix: str) -> str:
        path = f"{self.file_system.dataset_path}/{prefix}".rstrip("/")
        return f"/{self.file_system.mount_name}{path}"

    def _add_output(self) -> None:
        value = StackOutput(
            controller=self.controller.function.function_name,
            job=self.job_name,
            tier=self.tier,
            checkpoint_bucket=self.checkpoint_store.bucket.bucket_name,
            dataset_bucket=self.file_system.dataset_bucket.bucket_name,
            topic=self.monitoring.topic.topic_arn,
            table=self.controller.table.table_name,
            dashboard=self.dashboard.dashboard_name,
        )
        output = CfnOutput(
            self,
            "Output",
            description=f"Training job {self.job_name}, for the cdk-blackwell command line",
            value=json.dumps(value.to_dict()),
        )
        output.override_logical_id(stack_output_name(self.job_name))
