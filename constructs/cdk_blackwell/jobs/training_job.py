"""TrainingJob: what the three size tiers share, made to be subclassed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jsii
from aws_cdk import CustomResource, Duration, Stack, Tags
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sns as sns
from constructs import Construct

from cdk_blackwell.infrastructure.alarms import AlarmThresholds
from cdk_blackwell.infrastructure.capacity import Capacity
from cdk_blackwell.infrastructure.checkpoint_store import ICheckpointStore
from cdk_blackwell.infrastructure.dashboard import Predictions
from cdk_blackwell.infrastructure.file_system import ISharedFileSystem
from cdk_blackwell.infrastructure.foundation import IFoundation
from cdk_blackwell.infrastructure.job_security_group import JobSecurityGroup
from cdk_blackwell.infrastructure.kinds import check_kinds, whole_seconds
from cdk_blackwell.infrastructure.monitoring import TrainingMonitoring
from cdk_blackwell.infrastructure.package_index import PackageIndex
from cdk_blackwell.infrastructure.s3_prefix import S3Prefix, normalise_prefix
from cdk_blackwell.infrastructure.training_image import TrainingImage
from cdk_blackwell.infrastructure.training_role import TrainingRole
from cdk_blackwell.jobs.announce import add_output, annotate
from cdk_blackwell.jobs.bundle import bundle_asset, resolve_wheels
from cdk_blackwell.jobs.checkpoints import place_checkpoints
from cdk_blackwell.jobs.checks import (
    check_environment,
    check_places,
    check_unique_job,
    job_name_of,
)
from cdk_blackwell.jobs.cost_guard import CostGuard
from cdk_blackwell.jobs.extension_points import ExtensionPoints, returned
from cdk_blackwell.jobs.interface import ImportedTrainingJob, ITrainingJob, JobUse
from cdk_blackwell.jobs.plan_job import plan_job
from cdk_blackwell.jobs.request import check_definition
from cdk_blackwell.jobs.request_inputs import request_of
from cdk_blackwell.jobs.run_template import run_template
from cdk_blackwell.jobs.surroundings import distinct_keys, find_surroundings
from cdk_blackwell.jobs.tags import with_tags
from cdk_blackwell.lifecycle.handler.definition import JobDefinition, S3Object
from cdk_blackwell.lifecycle.run_controller import RunController
from cdk_blackwell.planning.contracts import (
    DATASET_MANIFEST_FILE,
    SCHEMA_VERSION,
    TAG_JOB,
    Tier,
    check_run_id,
)
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import Plan
from cdk_blackwell.planning.recipes import (
    ANY_LAYOUT,
    NO_OVERRIDES,
    LayoutOverrides,
    RecipeOverrides,
)
from cdk_blackwell.planning.run_spec import LossPolicy
from cdk_blackwell.planning.trial import TrialReport


@jsii.implements(ec2.IConnectable)
class TrainingJob(ExtensionPoints, JobUse):
    """One training job on ml.p6-b200.48xlarge: plan, network, role, bundle, controller, run.

    Not used itself: a tier's class sets ``tier``. What a subclass may change stands in
    ``ExtensionPoints``; what other stacks may do with a job in ``ITrainingJob``.

    :param model: the model to train.
    :param foundation: network, file system, checkpoint store and key. Default: each of the
        parameters ``vpc``, ``subnet``, ``file_system`` and ``checkpoint_store`` is required.
    :param vpc: network of the job. Default: the foundation's.
    :param subnet: subnet of all instances, in the file system's zone. Default: the foundation's.
    :param file_system: dataset, and checkpoints of several instances. Default: the foundation's.
    :param checkpoint_store: receives runs. Default: the foundation's.
    :param encryption_key: of exports and notifications. Default: the foundation's or the store's.
    :param asset_key: own key of the CDK's bootstrap bucket, if it was made with one. Default: none.
    :param security_group: of the instances; the rules it lacks are added. Default: a new one.
    :param security_group_rules_exist: add no rules to ``security_group``. Default: they are added.
    :param role: give the job's rights to this role and run under it. Default: a new role.
    :param log_group: receives the controller's log. Default: a new one.
    :param topic: tells people what happens; its policy must admit CloudWatch. Default: a new one.
    :param dataset_prefix: key prefix in the dataset bucket that holds ``manifest.json``.
    :param sequence_length: tokens per sequence.
    :param global_batch_tokens: tokens per optimizer step over all GPUs. Default: the planner's.
    :param train_tokens: tokens to train on. Default: the planner's, 20 a parameter.
    :param initial_weights: Hugging Face safetensors to start from. Default: random weights.
    :param instance_count: instances of 8 GPUs. Default: the fewest that the plan needs.
    :param capacity: where instances come from. Default: on demand, waiting up to 12 hours.
    :param max_runtime: longest time of one attempt. Default: 1 day, where no ceiling is needed.
    :param max_attempts: how often a run may get instances; waiting for them has ``capacity``'s
        limit. Default: 3.
    :param hourly_price_usd: what one instance costs per hour in your region.
    :param max_cost_usd: refuse when all attempts together can cost more. Required, with a price and
        ``max_runtime``, unless waived; a training plan's ``fee_usd`` is held against it.
    :param waive_cost_ceiling: go without ``max_cost_usd``. Default: no.
    :param run_id: change it to launch a new run. Default: define without launching.
    :param overrides: recipe values to replace, one at a time. Default: the tier's recipe.
    :param layout: layout values to fix, one at a time. Default: the search decides.
    :param measured: a trial of this job, whose winner decides what is left open. Default: none.
    :param checkpoint_interval: time between checkpoints. Default: 15 minutes.
    :param validation_interval_steps: steps between validations. Default: 500.
    :param validation_sequences: held-out sequences per validation. Default: 64.
    :param log_interval_steps: steps between metrics lines. Default: 10.
    :param in_cluster_restarts: times torchrun restarts failed workers in place. Default: 1.
    :param hang_timeout: silence of all ranks of an instance after which the attempt fails; starting
        and saving may take four times as long. Default: 15 minutes.
    :param loss_policy: ``warn`` of a loss that jumps, ``skip`` the step or ``stop``. Default: warn.
    :param export: write a Hugging Face export at the end. Default: yes.
    :param image: container image. Default: AWS's PyTorch 2.13 image for SageMaker.
    :param wheelhouse: folder of the wheels that travel. Default: ``wheelhouse`` where you work.
    :param packages_in_image: the image holds the locked packages; no wheels travel. Default: no.
    :param package_index: install the locked packages from there. Default: from the wheels.
    :param environment: more environment variables for the container. Default: none.
    :param hugging_face_token: own scripts find its ARN in ``CDKB_HUGGING_FACE_SECRET``; without NAT
        the network needs the endpoint ``secretsmanager``. Default: none.
    :param allow_tcp: several instances without EFA train over TCP, many times slower, instead of
        failing. Default: no.
    :param alarm_thresholds: when alarms go off. Default: those of ``AlarmThresholds``.
    :param encrypt_between_instances: SageMaker's inter-container encryption. It slows jobs on
        several instances, and what it does to EFA is not documented. Default: no.
    :param job_name: begins the names of training jobs and the job's prefix in S3, at most 22
        characters. Default: made from the construct's path.
    """

    tier: Tier

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        model: ModelShape,
        dataset_prefix: str,
        sequence_length: int,
        global_batch_tokens: int | None = None,
        train_tokens: int | None = None,
        foundation: IFoundation | None = None,
        vpc: ec2.IVpc | None = None,
        subnet: ec2.ISubnet | None = None,
        file_system: ISharedFileSystem | None = None,
        checkpoint_store: ICheckpointStore | None = None,
        encryption_key: kms.IKey | None = None,
        asset_key: kms.IKey | None = None,
        security_group: ec2.ISecurityGroup | None = None,
        security_group_rules_exist: bool = False,
        role: iam.IRole | None = None,
        log_group: logs.ILogGroup | None = None,
        topic: sns.ITopic | None = None,
        initial_weights: S3Prefix | None = None,
        instance_count: int | None = None,
        capacity: Capacity | None = None,
        max_runtime: Duration | None = None,
        max_attempts: int = 3,
        hourly_price_usd: float | None = None,
        max_cost_usd: float | None = None,
        waive_cost_ceiling: bool = False,
        run_id: str | None = None,
        overrides: RecipeOverrides | None = None,
        layout: LayoutOverrides | None = None,
        measured: TrialReport | None = None,
        checkpoint_interval: Duration | None = None,
        validation_interval_steps: int = 500,
        validation_sequences: int = 64,
        log_interval_steps: int = 10,
        in_cluster_restarts: int = 1,
        hang_timeout: Duration | None = None,
        loss_policy: LossPolicy = "warn",
        export: bool = True,
        image: TrainingImage | None = None,
        wheelhouse: str | None = None,
        packages_in_image: bool = False,
        package_index: PackageIndex | None = None,
        environment: Mapping[str, str] | None = None,
        hugging_face_token: secretsmanager.ISecret | None = None,
        allow_tcp: bool = False,
        alarm_thresholds: AlarmThresholds | None = None,
        encrypt_between_instances: bool = False,
        job_name: str | None = None,
    ) -> None:
        if not hasattr(type(self), "tier"):
            raise TypeError("abstract class: use SmallModelJob, MidModelJob or LargeShardedJob")
        super().__init__(scope, construct_id)
        stack = Stack.of(self)

        # Everything that can be refused is refused before a resource exists.
        check_kinds(TrainingJob.__init__, locals())
        if run_id is not None:
            check_run_id(run_id)
        self.check_model(model)
        self.model: ModelShape = model
        self.run_id: str | None = run_id
        self.capacity: Capacity = capacity or Capacity.on_demand()
        self.environment: dict[str, str] = check_environment(environment or {})
        prefix = normalise_prefix("dataset_prefix", dataset_prefix)
        self.plan: Plan = plan_job(
            tier=self.tier,
            model=model,
            sequence_length=sequence_length,
            global_batch_tokens=global_batch_tokens,
            train_tokens=train_tokens,
            instance_count=instance_count,
            overrides=returned("recipe", self.recipe(overrides or NO_OVERRIDES), RecipeOverrides),
            layout=layout or ANY_LAYOUT,
            measured=measured,
            hourly_price_usd=hourly_price_usd,
            max_cost_usd=None if self.capacity.kind == "training_plan" else max_cost_usd,
        )
        self.instance_count: int = self.plan.instance_count
        self.cost: CostGuard = CostGuard(
            capacity=self.capacity,
            instance_count=self.instance_count,
            max_runtime_seconds=whole_seconds("max_runtime", max_runtime, None),
            max_attempts=max_attempts,
            hourly_price_usd=hourly_price_usd,
            max_cost_usd=max_cost_usd,
            waived=waive_cost_ceiling,
        )
        shared_checkpoints = self.instance_count > 1
        self.capacity.check(
            instance_count=self.instance_count,
            region=stack.region,
            max_runtime_seconds=self.cost.runtime_seconds,
            checkpoints_in_s3=not shared_checkpoints,
        )
        wheels = resolve_wheels(
            wheelhouse=wheelhouse, packages_in_image=packages_in_image, package_index=package_index
        )
        self.job_name: str = job_name_of(self, job_name)
        check_unique_job(self)

        around = find_surroundings(
            foundation,
            vpc=vpc,
            subnet=subnet,
            file_system=file_system,
            checkpoint_store=checkpoint_store,
            encryption_key=encryption_key,
        )
        self.vpc, self.subnet = around.vpc, around.subnet
        self.file_system, self.checkpoint_store = around.file_system, around.checkpoint_store
        self.encryption_key: kms.IKey | None = around.encryption_key
        check_places(self, initial_weights)
        self.image: TrainingImage = image or TrainingImage.deep_learning_container(self)

        network = JobSecurityGroup(
            self,
            "Network",
            vpc=self.vpc,
            file_system=self.file_system,
            existing=security_group,
            rules_exist=security_group_rules_exist,
        )
        self.security_group: ec2.ISecurityGroup = network.security_group
        checkpoints = place_checkpoints(self, shared=shared_checkpoints)
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
            initial_weights=initial_weights,
            secrets=[hugging_face_token] if hugging_face_token else [],
            statements=[
                *(package_index.statements(stack) if package_index else ()),
                *returned("policy_statements", self.policy_statements(), Sequence),
            ],
            role=role,
        )
        self.role: iam.IRole = training_role.role
        bundle = bundle_asset(self, "Bundle", wheels=wheels)
        monitoring = self.monitoring_of(
            self,
            "Monitoring",
            thresholds=alarm_thresholds,
            topic=topic,
            encryption_key=self.encryption_key,
        )
        self.monitoring = returned("monitoring_of", monitoring, TrainingMonitoring)
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
            topic_key=self.monitoring.topic.master_key or self.encryption_key,
            training_plan_arn=self.capacity.training_plan_arn,
            log_group=log_group,
        )
        self.controller_function: lambda_.IFunction = self.controller.function
        self.dashboard: cloudwatch.Dashboard = self.monitoring.add_dashboard(
            Predictions.of(self.plan)
        )
        self.definition: JobDefinition = JobDefinition(
            schema_version=SCHEMA_VERSION,
            job=self.job_name,
            request=request_of(
                self,
                dataset_prefix=prefix,
                checkpoints=checkpoints,
                initial_weights=initial_weights,
                package_index=package_index,
                hugging_face_token=hugging_face_token,
                allow_tcp=allow_tcp,
                encrypt_between_instances=encrypt_between_instances,
            ),
            run=run_template(
                job=self.job_name,
                plan=self.plan,
                train_tokens=self.plan.train_tokens,
                checkpoint_interval_seconds=whole_seconds(
                    "checkpoint_interval", checkpoint_interval, 900
                ),
                export=export,
                validation_interval_steps=validation_interval_steps,
                validation_sequences=validation_sequences,
                log_interval_steps=log_interval_steps,
                in_cluster_restarts=in_cluster_restarts,
                hang_seconds=whole_seconds("hang_timeout", hang_timeout, 900),
                loss_policy=loss_policy,
            ),
            bundle=S3Object(bucket=bundle.s3_bucket_name, key=bundle.s3_object_key),
            checkpoint_bucket=self.checkpoint_store.bucket.bucket_name,
            dataset_manifest=S3Object(bucket=dataset_bucket.bucket_name, key=manifest_key),
            maximum_attempts=max_attempts,
            instance_count=self.instance_count,
            hourly_price_usd=self.cost.marginal_price_usd,
            max_cost_usd=self.cost.max_cost_usd,
        )
        check_definition(self.definition, run_id)
        Tags.of(self).add(TAG_JOB, self.job_name)
        self.run: CustomResource = self.controller.add_run(
            self,
            "Run",
            definition=with_tags(self.definition.to_dict(), like=self.controller.cfn_function),
            run_id=run_id,
            # Every entry is there in every deploy.
            outlived_by=[network, *network.rules, training_role, *checkpoints.ready, *around.ready],
        )
        add_output(self)
        annotate(self, encrypt_between_instances=encrypt_between_instances)

    @staticmethod
    def from_job_attributes(
        scope: Construct,
        construct_id: str,
        *,
        job_name: str,
        tier: Tier,
        controller_function: lambda_.IFunction,
        checkpoint_store: ICheckpointStore,
    ) -> ITrainingJob:
        """Use a job of another stack, app or account, by what its ``CdkBlackwell...`` output says.

        :param job_name: the output's ``job``.
        :param tier: the output's ``tier``.
        :param controller_function: the output's ``controller``, imported.
        :param checkpoint_store: ``CheckpointStore.from_bucket`` of the output's
            ``checkpoint_bucket``.
        """
        return ImportedTrainingJob(
            scope,
            construct_id,
            job_name=job_name,
            tier=tier,
            controller_function=controller_function,
            checkpoint_store=checkpoint_store,
        )

    @property
    def connections(self) -> ec2.Connections:
        """The instances' security group."""
        return ec2.Connections(security_groups=[self.security_group])
