"""Which verbs run without the command line library?

These verbs ask no cluster. Importing that library would take a quarter of their time. `main` runs
all other verbs and shows the help.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial


def direct(words: Sequence[str]) -> Callable[[], int] | None:
    """Return a function that runs these arguments, already imported; None: use `main`."""
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
