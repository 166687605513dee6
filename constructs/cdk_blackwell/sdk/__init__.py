"""The bridge from a deployed job to the SageMaker Python SDK, version 3 (extra ``[sdk]``)."""
