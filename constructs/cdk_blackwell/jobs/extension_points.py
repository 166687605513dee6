"""What a subclass of ``TrainingJob`` may change, each point with its default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from aws_cdk import aws_iam as iam

from cdk_blackwell.infrastructure.alarms import AlarmThresholds
from cdk_blackwell.infrastructure.monitoring import TrainingMonitoring
from cdk_blackwell.jobs.request import RequestInputs, build_request
from cdk_blackwell.planning.contracts import CONTAINER_ARGUMENTS, CONTAINER_ENTRYPOINT
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import RecipeOverrides

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_sns as sns
    from constructs import Construct

_Returned = TypeVar("_Returned")


def returned(method: str, value: _Returned, kind: type[Any]) -> _Returned:
    """``value``, which an extension point gave; ValueError where that is not a ``kind``.

    A forgotten ``return`` gives None, and one text in place of a list would be taken letter by
    letter.
    """
    if not isinstance(value, kind) or isinstance(value, str | bytes):
        raise ValueError(
            f"{method}() of the job's class returned {value!r}: return a {kind.__name__}, as "
            f"super().{method}(...) does"
        )
    return value


class ExtensionPoints:
    """Methods that the constructor of a job calls, in the order they stand here.

    Override one and extend what ``super()`` returns. They run while the job is being made: what a
    method may read of ``self`` its text says, and nothing that your own ``__init__`` sets after
    ``super().__init__`` is there yet.
    """

    def check_model(self, model: ModelShape) -> None:
        """Raise ValueError for a model you do not want; the tier's limits the plan checks.

        Nothing of ``self`` is set yet.
        """

    def recipe(self, overrides: RecipeOverrides) -> RecipeOverrides:
        """The recipe values of your own; what is left None the planner chooses.

        ``self.model`` and ``self.capacity`` are set. Extend ``overrides``,
        which is what the job was given: ``dataclasses.replace(overrides, precision="bf16")``.
        """
        return overrides

    def monitoring_of(
        self,
        scope: Construct,
        construct_id: str,
        *,
        thresholds: AlarmThresholds | None,
        topic: sns.ITopic | None,
        encryption_key: kms.IKey | None,
    ) -> TrainingMonitoring:
        """The topic, alarms and dashboard: return a subclass of yours, or one with own alarms.

        ``self.plan``, ``self.job_name`` and ``self.role`` are set.
        """
        job: Any = self
        return TrainingMonitoring(
            scope,
            construct_id,
            job=job.job_name,
            tier=job.tier,
            thresholds=thresholds,
            topic=topic,
            max_cost_usd=job.cost.max_cost_usd,
            encryption_key=encryption_key,
        )

    def policy_statements(self) -> Sequence[iam.PolicyStatement]:
        """What your scripts may do beside training: more statements for the training role.

        ``self.plan``, ``self.job_name`` and the job's surroundings are set.
        """
        return ()

    def container_environment(self) -> dict[str, str]:
        """Environment of the container beside the names this library sets itself.

        Everything but ``self.definition`` is set. Never a secret: it stands in the template.
        """
        job: Any = self
        return dict(job.environment)

    def channels(self) -> list[dict[str, Any]]:
        """More channels, as CreateTrainingJob has them; ``request.s3_channel`` makes one.

        ``code``, ``config``, ``dataset``, ``checkpoints`` and ``initial_weights`` are this
        library's own. SageMaker takes 20 in all.
        """
        return []

    def entrypoint(self) -> tuple[Sequence[str], Sequence[str]]:
        """The container's entrypoint and arguments, each string at most 256 characters.

        The default unpacks the bundle of the ``code`` channel and starts its launcher. Another one
        keeps what the controller relies on: ``progress.json`` in S3, the failure text, checkpoints
        in ``CDKB_CHECKPOINT_DIR``.
        """
        return CONTAINER_ENTRYPOINT, CONTAINER_ARGUMENTS

    def request_template(self, inputs: RequestInputs) -> dict[str, Any]:
        """The CreateTrainingJob request, for anything that has no point of its own.

        Strings may hold ``{{job_name}}``, ``{{run_id}}``, ``{{attempt}}``, ``{{run_uri}}`` and
        ``{{stack_id}}``, which the controller fills. The result is held against SageMaker's model.
        """
        return build_request(inputs)
