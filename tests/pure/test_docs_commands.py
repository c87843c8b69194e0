"""Every command in the documents is one that the verb's own parser takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.docs import DOCUMENTS, ROOT, blocks

from eos.cli.main import command_line
from eos.launch import options

EOS = command_line()
# Names that stand for a reader's own.
OTHERS = {"orders", "payments", "refunds", "shop", "NAME"}
# spark-submit's, as far as the documents name them.
OF_SPARK = {"--master", "--conf", "--jars", "--py-files", "--archives", "--deploy-mode"}
WITHOUT_VERB = {"--version"}  # tests/architecture/test_offline.py runs them
COMMAND = re.compile(r"(?:\w+=\S+ )*(?:eos|\./spark-submit\.sh) (.*)")


class RefusedError(Exception):
    """A verb does not take these words."""


def commands() -> Iterator[tuple[str, str]]:
    """Those of blocks, whole, with all that may be left out and without the comments."""
    for name, text in [*blocks(""), *blocks("bash")]:
        for line in re.sub(r"\\\n\s*", "", text).splitlines():
            found = COMMAND.fullmatch(line.removeprefix("$ "))
            if found and found[1] not in WITHOUT_VERB:
                yield name, re.sub(r"[\[\]]", "", found[1])


def spoken() -> Iterator[str]:
    """Those inside sentences, which say no more than they have to."""
    for path in [*DOCUMENTS, *(ROOT / ".github").rglob("*.*")]:
        yield from re.findall(r"`(?:eos|\./spark-submit\.sh) ([^`\n]+)`", path.read_text())


def parse(words: Sequence[str]) -> str:
    """The verb whose parser took them; nothing for a run."""
    try:
        if words[0] in EOS.verbs and words[0] != "run":
            return EOS.parse(words).parser.prog
        run(*(words[1:] if words[0] == "run" else words))
    except (Exception, SystemExit) as error:
        raise RefusedError(f"{' '.join(words)}: {error!r}") from error
    return ""


def run(*words: str) -> None:
    """Of pipelines that may be the reader's. What is not ours is spark-submit's, and not asked:
    that would cost a second for each."""
    named = options.leading_pipelines(words)
    for each in named:
        is_there = (ROOT / each).exists() or each == "..."
        assert is_there or OTHERS & set(Path(each).parts), each
    there = str(ROOT / "pipelines" / "quickstart" / "pipeline.yaml")
    left = options.parse([there for _ in named] + list(words[len(named) :])).spark
    assert {word for word in left if word.startswith("-")} <= OF_SPARK, left


def test_commands_are_what_their_verbs_take() -> None:
    found = list(commands())
    verbs = set()
    assert len(found) > 10
    for name, command in found:
        try:
            verbs.add(parse(shlex.split(command, comments=True)))
        except RefusedError as error:
            pytest.fail(f"{name}: {error}")
    assert verbs >= {"", "eos plan", "eos replay", "eos report", "eos broker start"}


@pytest.mark.parametrize(
    "command",
    [
        "replay orders --rlue paid",
        "replay --dry-run",
        "plan orders --mermaid --check",
        "lint --jsno pipelines/orders_enriched",
        "broker start --nodes many",
        "broker restart",
        "completion tcsh",
        "pipelines/quickstart/pipeline.yaml --profiel container",
        "run pipelines/nobodys/pipeline.yaml",
        "pipelines/quickstart/pipeline.yaml --once --available-now",
    ],
)
def test_what_a_verb_does_not_take_would_be_seen(command: str) -> None:
    with pytest.raises(RefusedError):
        parse(shlex.split(command))


def test_sentences_name_verbs_and_options_that_are_there() -> None:
    named = set[str]()
    for command in set(spoken()):
        if command in WITHOUT_VERB:
            continue
        verb, *words = re.sub(r"[\[\]]|\.\.\.", "", command).split()
        options_said = {word for word in words if word.startswith("--")}
        if verb not in EOS.verbs:
            assert verb.startswith("pipelines/") or verb in {"PIPELINE", "VERB"}, command
            options_there = set(re.findall(r"--[a-z-]+", options.HELP)) | OF_SPARK
        else:
            named.add(verb)
            options_there = of(verb, words)
        assert options_said <= options_there, command
    assert {"run", "lint", "plan"} <= named


def of(verb: str, words: Sequence[str]) -> set[str]:
    """The options of a verb."""
    if verb == "run":
        return set(re.findall(r"--[a-z-]+", options.HELP))
    parser = EOS.verbs[verb]
    return set(parser.verbs.get(words[0] if words else "", parser)._option_string_actions)


def test_the_help_of_a_run_has_all_its_options() -> None:
    listed = re.findall(r"(?m)^  (?:-h, )?(--[a-z-]+)", options.HELP)
    assert sorted(listed) == sorted({*options.FLAGS, *options.VALUES, "--help"})


def test_pipelines_and_programs_that_are_named_are_there() -> None:
    texts = [text for language in ("", "bash") for _, text in blocks(language)]
    said = "\n".join([*texts, *re.findall(r"`[^`\n]+`", "\n".join(map(Path.read_text, DOCUMENTS)))])
    pipelines = set(re.findall(r"\bpipelines/\w+/pipeline\.yaml", said))
    programs = set(re.findall(r"(?m)^\./(\S+)", said))
    assert "pipelines/quickstart/pipeline.yaml" in pipelines
    assert {"spark-submit.sh", "tests/run"} <= programs
    for named in pipelines:
        assert (ROOT / named).is_file() or named.split("/")[1] in OTHERS, named
    for named in programs:
        assert (ROOT / named).is_file(), named
