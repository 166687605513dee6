"""A child process is asked, heard and never left behind."""

from __future__ import annotations

import io
import os
import sys

import pytest
from rich.console import Console

from cdk_blackwell.cli.plan.child import ChildFailedError, ask_child


def ask(script: str) -> tuple[dict[str, object], str]:
    console = Console(file=io.StringIO(), force_terminal=False)
    answer = ask_child(
        [sys.executable, "-c", script],
        {"question": 6},
        environment=os.environ,
        title="counting",
        console=console,
    )
    return answer, console.file.getvalue()  # type: ignore[attr-defined]


def test_it_gets_json_and_answers_with_json() -> None:
    script = "import json, sys; print(json.dumps({'answer': json.load(sys.stdin)['question'] * 7}))"
    assert ask(script)[0] == {"answer": 42}


def test_its_last_words_are_the_error() -> None:
    with pytest.raises(ChildFailedError, match="no luck"):
        ask("import sys; print('working', file=sys.stderr); sys.exit('no luck')")


@pytest.mark.parametrize("script", ["print('hello')", "print('[1]')", "pass"])
def test_an_answer_that_is_no_object_is_an_error(script: str) -> None:
    with pytest.raises(ChildFailedError, match="its answer is not"):
        ask(script)


def test_much_output_on_both_streams_does_not_block() -> None:
    script = (
        "import json, sys\n"
        "sys.stderr.write('x' * 100 + '\\n' * 2000)\n"
        "sys.stderr.write(('y' * 100 + '\\n') * 5000)\n"
        "print(json.dumps({'a': 'z' * 500_000}))"
    )
    assert len(str(ask(script)[0]["a"])) == 500_000


def test_it_is_ended_when_the_wait_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    started: list[subprocess.Popen[str]] = []
    real = subprocess.Popen

    def remember(*words: object, **options: object) -> subprocess.Popen[str]:
        started.append(real(*words, **options))  # type: ignore[call-overload]
        return started[-1]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", remember)
    monkeypatch.setattr("cdk_blackwell.cli.plan.child._wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ask("import time; time.sleep(600)")
    assert started[0].poll() is not None
