"""Two small stacks with a custom resource, for the test of the real CDK command line."""

from __future__ import annotations

import os

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

HANDLER = """
import json
import urllib.request

def handler(event, context):
    failed = event["ResourceProperties"].get("Fail") and event["RequestType"] == "Create"
    answer = {
        "Status": "FAILED" if failed else "SUCCESS",
        "Reason": "the sample was refused",
        "PhysicalResourceId": "sample-run",
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
        "Data": {"Greeting": "hello " + event["ResourceProperties"]["Bucket"]},
    }
    request = urllib.request.Request(
        event["ResponseURL"], data=json.dumps(answer).encode(), method="PUT"
    )
    urllib.request.urlopen(request)
"""

app = cdk.App()
storage = cdk.Stack(app, "SampleStorage")
bucket = s3.Bucket(
    storage,
    "Bucket",
    versioned=True,
    enforce_ssl=True,
    block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
    removal_policy=cdk.RemovalPolicy.DESTROY,
)
run = cdk.Stack(app, "SampleRun")
function = lambda_.Function(
    run,
    "Function",
    runtime=lambda_.Runtime.PYTHON_3_13,
    handler="index.handler",
    code=lambda_.Code.from_inline(HANDLER),
)
properties = {"Bucket": bucket.bucket_name}
if os.environ.get("SAMPLE_FAIL"):
    properties["Fail"] = "yes"
thing = cdk.CustomResource(
    run,
    "Thing",
    service_token=function.function_arn,
    resource_type="Custom::Sample",
    properties=properties,
)
cdk.CfnOutput(run, "Greeting", value=thing.get_att_string("Greeting"))
app.synth()
