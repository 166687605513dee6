"""What every test shares: the right Node for jsii, and no way to a real AWS account.

The first thing that conftest.py imports: jsii starts its Node, with the environment of that
moment, as soon as anything imports aws_cdk.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).parent.parent
NODE = Path(sys.executable).parent / "node"

if NODE.exists():
    os.environ.setdefault("JSII_NODE", str(NODE))
os.environ.update(
    AWS_ACCESS_KEY_ID="testing",
    AWS_SECRET_ACCESS_KEY="testing",
    AWS_SESSION_TOKEN="testing",
    AWS_DEFAULT_REGION="us-west-2",
    AWS_REGION="us-west-2",
    AWS_EC2_METADATA_DISABLED="true",
    AWS_CONFIG_FILE=os.devnull,
    AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    # The built-in template validator costs each synth 2.5-5 s; one strict test turns it on.
    CDK_VALIDATION="false",
)
os.environ.pop("AWS_PROFILE", None)
os.environ.pop("AWS_ENDPOINT_URL", None)

# A shell's background job ignores interrupts, and so would every child that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time: a property that fails does so for everybody, and on every run.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
