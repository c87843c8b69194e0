"""Every command in the documents is one that the verb's own parser takes."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from support.docs import DOCUMENTS, ROOT, blocks

from eos.cli.broker import app as broker
from eos.cli.main import app
from eos.launch import options

VERBS, BROKER = typer.main.get_command(app).commands, typer.main.get_command(broker)
# Names that stand for a reader's own.
OTHERS = {"orders", "shop", "NAME"}
# spark-submit's, as far as the documents name them.
OF_SPARK = {"--master", "--conf", "--jars", "--py-files", "--archives", "--deploy-mode"}
COMMAND = re.compile(r"(?:\w+=\S+ )*(?:eos|\./spark-submit\.sh) (.*)")


class _ParsedError(Exception):
    """A verb's words went through its parser, and the verb was not begun."""


class RefusedError(Exception):
    """A verb does not take these words."""


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[argparse.ArgumentParser]:
    """The parsers of argparse that words went through."""
    parsers = list[argparse.ArgumentParser]()
    really = argparse.ArgumentParser.parse_args

    def parse(self: argparse.ArgumentParser, words: Sequence[str]) -> None:
        parsers.append(self)
        really(self, words)
        raise _ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    return parsers


def commands() -> Iterator[tuple[str, str]]:
    """Those of blocks, whole, with all that may be left out and without the comments."""
    for name, text in [*blocks(""), *blocks("bash")]:
        for line in re.sub(r"\\\n\s*", "", text).splitlines():
            found = COMMAND.fullmatch(line.removeprefix("$ "))
            if found:
                yield name, re.sub(r"[\[\]]", "", found[1])


def spoken() -> Iterator[str]:
    """Those inside sentences, which say no more than they have to."""
    for path in DOCUMENTS:
        yield from re.findall(r"`(?:eos|\./spark-submit\.sh) ([^`\n]+)`", path.read_text())


def parse(words: Sequence[str]) -> None:
    try:
        _parse(*words)
    except (Exception, SystemExit) as error:  # typer's have no public name in all its releases
        raise RefusedError(f"{' '.join(words)}: {error!r}") from error


def _parse(verb: str, *words: str) -> None:
    if verb not in VERBS:
        run(verb, *words)
    elif verb == "run":
        run(*words)
    elif verb == "broker":
        typed(BROKER, words)
    elif is_handed_on(VERBS[verb]):
        with suppress(_ParsedError):
            VERBS[verb].main(list(words), prog_name="eos", standalone_mode=False)
    else:
        typed(VERBS[verb], words)


def is_handed_on(command: Any) -> bool:
    """Its words are read further down, by argparse."""
    return bool(command.context_settings.get("ignore_unknown_options"))


def run(named: str, *words: str) -> None:
    """Of a pipeline that may be the reader's. What is not ours is spark-submit's, and not asked:
    that would cost a second for each."""
    pipeline = ROOT / named
    assert pipeline.exists() or named == "..." or OTHERS & set(Path(named).parts), named
    there = ROOT / "pipelines" / "quickstart" / "pipeline.yaml"
    left = options.parse([str(there), *words]).spark
    assert {word for word in left if word.startswith("-")} <= OF_SPARK, left


def typed(command: Any, words: Sequence[str]) -> None:
    if hasattr(command, "commands"):  # a group
        command, words = command.commands[words[0]], words[1:]
    command.make_context(command.name, list(words))


def test_commands_are_what_their_verbs_take(parsed: list[argparse.ArgumentParser]) -> None:
    found = list(commands())
    assert len(found) > 10
    for name, command in found:
        try:
            parse(shlex.split(command, comments=True))
        except RefusedError as error:
            pytest.fail(f"{name}: {error}")
    assert {parser.prog for parser in parsed} >= {"eos plan", "eos replay", "eos report"}


@pytest.mark.usefixtures("parsed")
@pytest.mark.parametrize(
    "command",
    [
        "replay orders --rlue paid",
        "replay --dry-run",
        "plan orders --mermaid --check",
        "lint --jsno pipelines/orders_enriched",
        "broker start --nodes many",
        "pipelines/quickstart/pipeline.yaml --profiel container",
        "run pipelines/nobodys/pipeline.yaml",
        "pipelines/quickstart/pipeline.yaml --once --available-now",
    ],
)
def test_what_a_verb_does_not_take_would_be_seen(command: str) -> None:
    with pytest.raises(RefusedError):
        parse(shlex.split(command))


def test_sentences_name_verbs_and_options_that_are_there(
    parsed: list[argparse.ArgumentParser],
) -> None:
    named = set[str]()
    for command in set(spoken()):
        verb, *words = re.sub(r"[\[\]]|\.\.\.", "", command).split()
        options_said = {word for word in words if word.startswith("--")}
        if verb not in VERBS:
            assert verb.startswith("pipelines/") or verb in {"PIPELINE", "VERB"}, command
            options_there = set(re.findall(r"--[a-z-]+", options.HELP)) | OF_SPARK
        else:
            named.add(verb)
            options_there = of(verb, parsed, words)
        assert options_said <= options_there, command
    assert {"run", "lint", "plan"} <= named


def of(verb: str, parsed: list[argparse.ArgumentParser], words: Sequence[str]) -> set[str]:
    """The options of a verb."""
    command = VERBS[verb]
    if verb == "run":
        return set(re.findall(r"--[a-z-]+", options.HELP))
    if verb == "broker":
        command = BROKER.commands[words[0]] if words else BROKER
    elif is_handed_on(command):
        with suppress(_ParsedError, SystemExit):
            command.main(["x"], prog_name="eos", standalone_mode=False)
        return set(parsed[-1]._option_string_actions)
    return {option for each in command.params for option in each.opts}


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
