"""The environment of all tests, and every code block of the README and of docs/ as a test."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser

# A dependency of the SageMaker SDK (smdebug-rulesconfig) installs a package of this name, which
# would come before a folder without __init__.py.
_tests = ModuleType("tests")
_tests.__path__ = [str(Path(__file__).parent / "tests")]
sys.modules["tests"] = _tests

import tests.environment  # noqa: E402, F401, I001 - before anything imports aws_cdk

from tests.documentation.apps import begin_page, synthesise_page  # noqa: E402
from tests.documentation.commands import check_console  # noqa: E402
from tests.documentation.formats import check_json, check_toml, check_yaml  # noqa: E402
from tests.documentation.snippets import PythonBlockParser  # noqa: E402

pytest_collect_file = Sybil(
    parsers=[
        PythonBlockParser(future_imports=["annotations"]),
        CodeBlockParser("console", check_console),
        CodeBlockParser("json", check_json),
        CodeBlockParser("toml", check_toml),
        CodeBlockParser("yaml", check_yaml),
    ],
    patterns=["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/*/*.md"],
    setup=begin_page,
    teardown=synthesise_page,
).pytest()
