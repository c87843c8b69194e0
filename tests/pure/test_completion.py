"""A shell that loads the script of `eos completion` completes verbs, options, choices and names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each program prints a line for each completion of $1, without its description.
BASH = """
source <(eos completion bash)
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
_python_argcomplete eos
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { : }
_describe() { print -l -- ${completions%%:*} }
source <(eos completion zsh)
BUFFER=$1 CURSOR=${#1} words=(${=1})
_python_argcomplete
"""
FISH = """
eos completion fish | source
complete --do-complete "$argv[1]" | string replace --regex '\\t.*' ''
"""
SHELLS = {
    "bash": ["--norc", "-c", BASH, "bash"],
    "zsh": ["-f", "-c", ZSH, "zsh"],
    "fish": ["--no-config", "-c", FISH],
}
# Few machines have all of them; bash runs ./spark-submit.sh.
PRESENT = ["bash", *(shell for shell in ("zsh", "fish") if shutil.which(shell))]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two pipelines, of which one is in a folder of another name, two profiles, and `eos`."""
    for path, text in {
        "pipelines/orders/pipeline.yaml": "version: 1\nname: orders\n",
        "pipelines/other/pipeline.yaml": "# 'name: no'\nversion: 1\nname: 'stamped_2' # its name\n",
        "conf/local.yaml": "{}",
        "conf/prod.yaml": "{}",
        "bin/eos": f'#!/bin/sh\nexec {sys.executable} -m eos "$@"\n',
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "bin" / "eos").chmod(0o755)
    return tmp_path


def completed(shell: str, line: str, project: Path) -> set[str]:
    done = subprocess.run(
        [shell, *SHELLS[shell], line],
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{project / 'bin'}:{os.environ['PATH']}",
            "HOME": str(project),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not done.stderr, done.stderr
    return {word.strip() for word in done.stdout.splitlines()}


@pytest.mark.parametrize("shell", PRESENT)
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("eos sta", {"status"}),
        ("eos rep", {"report", "replay"}),
        ("eos broker st", {"start", "stop", "status"}),
        ("eos recover --set", {"--set-checkpoint-aside"}),
        ("eos status ", {"orders", "stamped_2"}),
        ("eos lint orders st", {"stamped_2"}),
        ("eos doctor --profile ", {"local", "prod"}),
    ],
)
def test_a_shell_completes(shell: str, line: str, words: set[str], project: Path) -> None:
    assert completed(shell, line, project) == words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("eos schema ", {"pipeline", "profile"}),
        ("eos completion ", {"bash", "zsh", "fish"}),
        ("eos broker start --version ", {"4.3", "4.0", "3.9", "3.6"}),
        ("eos plan orders --m", {"--mermaid"}),
        ("eos run or", {"orders"}),
        ("eos run orders --on", {"--once"}),
        ("eos run orders --driver-m", {"--driver-memory"}),
        ("eos test --profile=p", {"prod"}),
        ("eos report orders --output pip", {"pipelines/"}),
        ("eos lint pipelines/ot", {"pipelines/other/"}),
    ],
)
def test_each_kind_of_argument_has_its_words(line: str, words: set[str], project: Path) -> None:
    assert completed("bash", line, project) == words
