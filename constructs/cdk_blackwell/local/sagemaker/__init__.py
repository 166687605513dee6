"""SageMaker training jobs of the embedded AWS: the API, the states and the containers.

The server calls :func:`install` once, before it serves, and ``shutdown()`` once when it ends::

    runtime = install(
        state_dir=state_dir,
        processes_per_host=2,
        emit=publish_event,                  # (region, account, event) -> None
        endpoint_url=lambda: server_url,     # asked only when a job runs, so after binding
    )
    try:
        ...                                  # serve
    finally:
        runtime.shutdown()                   # ends every container; may be called twice

``emit`` is called from one thread per job, in the order of the job's states; it may take its time.
While a job runs this package calls S3, FSx (``describe_file_systems`` with ``MountName`` and
``Lifecycle``, ``describe_data_repository_associations``) and CloudWatch Logs on ``endpoint_url``.
"""

from __future__ import annotations

from cdk_blackwell.local.sagemaker.runtime import SageMakerRuntime, install
from cdk_blackwell.local.sagemaker.settings import Timing

__all__ = ["SageMakerRuntime", "Timing", "install"]
