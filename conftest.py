"""Every code block of the README and of docs/ is a test (see tests/documentation)."""

from __future__ import annotations

from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser

from tests.documentation.apps import begin_page, synthesise_page
from tests.documentation.commands import check_console
from tests.documentation.formats import check_json, check_toml, check_yaml
from tests.documentation.snippets import PythonBlockParser

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
