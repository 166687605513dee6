"""A job's surroundings as the SDK's objects, for code that the job does not know.

Everything is taken from the request that the job's controller would send, so that own code runs on
the same instances, in the same network, under the same role, on the same data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.planning.contracts import (
    CHANNEL_CHECKPOINTS,
    CHANNEL_CODE,
    CHANNEL_CONFIG,
)
from cdk_blackwell.sdk.sessions import role_as_it_is

if TYPE_CHECKING:
    from sagemaker.core.helper.session_helper import Session
    from sagemaker.core.training.configs import (
        Compute,
        InputData,
        Networking,
        OutputDataConfig,
        StoppingCondition,
    )
    from sagemaker.train import ModelTrainer

FOLDER: Final = "_own-code"
"""Beside the runs, which is all that the job's role may write; no run_id begins like this."""
OWN_ENVIRONMENT: Final = "CDKB_"
"""Names that say which run a container is: not true of other code."""
_MANAGED_CHANNELS: Final = (CHANNEL_CODE, CHANNEL_CONFIG, CHANNEL_CHECKPOINTS)
"""Bundle, run.json and the writable checkpoints belong to runs of the controller."""


@dataclass(frozen=True, kw_only=True)
class OwnCode:
    """The objects one by one, and a ``ModelTrainer`` made of them."""

    definition: JobDefinition
    boto_session: Any

    @property
    def role(self) -> str:
        """ARN of the job's role: its prefix of the bucket, its subnet, its image, nothing else."""
        return str(self.definition.request["RoleArn"])

    @property
    def training_image(self) -> str:
        """The job's image."""
        return str(self.definition.request["AlgorithmSpecification"]["TrainingImage"])

    @property
    def compute(self) -> Compute:
        """Instances, training plan, warm pool and spot as the stack has them."""
        from sagemaker.core.training.configs import Compute

        request = self.definition.request
        spot = request.get("EnableManagedSpotTraining")
        return Compute(**_snake(request["ResourceConfig"]), enable_managed_spot_training=spot)

    @property
    def networking(self) -> Networking:
        """The job's subnet and security group, without which EFA and FSx do not work."""
        from sagemaker.core.training.configs import Networking

        request = self.definition.request
        return Networking(
            **_snake(request["VpcConfig"]),
            enable_inter_container_traffic_encryption=request.get(
                "EnableInterContainerTrafficEncryption"
            ),
        )

    @property
    def input_data(self) -> list[InputData]:
        """The dataset on FSx for Lustre, and initial weights and own channels where there are."""
        from sagemaker.core.shapes import FileSystemDataSource, S3DataSource
        from sagemaker.core.training.configs import InputData

        kinds = {"FileSystemDataSource": FileSystemDataSource, "S3DataSource": S3DataSource}
        return [
            InputData(
                channel_name=channel["ChannelName"],
                data_source=kinds[kind](**_snake(source)),
            )
            for channel in self.definition.request["InputDataConfig"]
            if channel["ChannelName"] not in _MANAGED_CHANNELS
            for kind, source in channel["DataSource"].items()
        ]

    @property
    def stopping_condition(self) -> StoppingCondition:
        """Longest run time and wait of one attempt, as the stack has them."""
        from sagemaker.core.training.configs import StoppingCondition

        return StoppingCondition(**_snake(self.definition.request["StoppingCondition"]))

    @property
    def output_data_config(self) -> OutputDataConfig:
        """Uncompressed results beside the job's runs, encrypted as they are."""
        from sagemaker.core.training.configs import OutputDataConfig

        output = self.definition.request["OutputDataConfig"]
        bucket = self.definition.checkpoint_bucket
        return OutputDataConfig(
            **_snake({**output, "S3OutputPath": f"s3://{bucket}/{self._prefix}/output/"})
        )

    @property
    def environment(self) -> dict[str, str]:
        """The job's environment but for what names a run: EFA, memory allocator, own values."""
        return {
            name: value
            for name, value in self.definition.request["Environment"].items()
            if not name.startswith(OWN_ENVIRONMENT)
        }

    def session(self) -> Session:
        """A session of the SDK that uploads code where the job's role may read it."""
        from sagemaker.core.helper.session_helper import Session

        return Session(
            boto_session=self.boto_session,
            default_bucket=self.definition.checkpoint_bucket,
            default_bucket_prefix=self._prefix,
        )

    def model_trainer(self, **more: Any) -> ModelTrainer:
        """Everything above in a ``ModelTrainer``; arguments given here win."""
        from sagemaker.train import ModelTrainer

        filled_in = {
            "sagemaker_session": self.session(),
            "role": self.role,
            "base_job_name": f"{self.definition.job}-own-code",
            "training_image": self.training_image,
            "compute": self.compute,
            "networking": self.networking,
            "input_data_config": self.input_data,
            "stopping_condition": self.stopping_condition,
            "output_data_config": self.output_data_config,
            "environment": self.environment,
        }
        with role_as_it_is():
            return ModelTrainer(**{**filled_in, **more})

    @property
    def _prefix(self) -> str:
        return f"{self.definition.job}/runs/{FOLDER}"


def _snake(members: dict[str, Any]) -> dict[str, Any]:
    """A request's members by the names that the SDK gives them."""
    from sagemaker.core.utils.utils import pascal_to_snake

    return {pascal_to_snake(name): value for name, value in members.items()}
