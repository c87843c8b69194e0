"""The verbs that ask nobody, without the library of the command line: its parts for typed words
take a quarter of the time in which these answer. All else, and their help, is `main`'s."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial


def direct(words: Sequence[str]) -> Callable[[], int] | None:
    """What answers these words, with all that it imports; None: `main` does."""
    verb, given = (words[0], words[1:]) if words else ("", words)
    if verb == "plan":
        from eos.cli.plan import plan_verb

        return partial(plan_verb, given)
    if verb == "init":
        from eos.cli.init import init

        return partial(init, given)
    paths = [word for word in given if word != "--json"]
    if verb != "lint" or not paths or any(word.startswith("-") for word in paths):
        return None
    from eos.cli.lint import lint
    from eos.cli.pipeline_argument import file_of

    return lambda: lint([file_of(path) for path in paths], as_json="--json" in given)
