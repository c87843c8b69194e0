"""The argument parser that all `eos` commands (verbs) share: help, usage errors, suggestions."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from eos.suggestion import suggestion


class Parser(argparse.ArgumentParser):
    """Parser of one verb, or of a group of verbs. A usage error is printed and exits with 2."""

    def __init__(self, *, is_group: bool = False, **texts: Any) -> None:
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(formatter_class=layout, allow_abbrev=False, **texts)
        self.verbs: dict[str, Parser] = {}
        self._added = (
            self.add_subparsers(title="commands", metavar="COMMAND [-h]") if is_group else None
        )

    def add_verb(
        self, name: str, summary: str, about: str = "", codes: str = "", *, is_group: bool = False
    ) -> Parser:
        """Add a verb to this group, and return the verb's parser.

        `summary` is the line in the group's help, `about` the text of the verb's own help. `codes`
        lists its exit codes below.
        """
        assert self._added is not None, "only a group has verbs"
        self.verbs[name] = self._added.add_parser(
            name, help=summary, description=about or summary, epilog=codes, is_group=is_group
        )
        return self.verbs[name]

    def add_pipeline(self, *, is_needed: bool = True) -> None:
        """Add the arguments of a verb for one pipeline: the pipeline, its profile, and --json."""
        count = None if is_needed else "?"
        name = "file, folder or name of the pipeline"
        self.add_argument("pipeline", metavar="PIPELINE", nargs=count, help=name)
        self.add_profile("profile to use: conf/NAME.yaml, or a path")
        self.add_json()

    def add_profile(self, about: str) -> None:
        self.add_argument("--profile", metavar="NAME|PATH", help=about)

    def add_json(self) -> None:
        self.add_flag("--json", "print one JSON object on stdout")

    def add_flag(self, name: str, about: str) -> None:
        self.add_argument(name, action="store_true", help=about)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse arguments that begin with the name of a verb, and return its options.

        The attribute `parser` of the result is the verb's parser. Options may be anywhere between
        the other arguments.
        """
        if arguments and arguments[0] in self.verbs:
            return self.verbs[arguments[0]].parse(arguments[1:])
        if self.verbs:
            self._end_without_verb(arguments)
        options, left = self.parse_known_intermixed_args(arguments)
        if left:
            self._reject(left)
        options.parser = self
        return options

    def _end_without_verb(self, arguments: Sequence[str]) -> NoReturn:
        if not arguments:
            self.print_help(sys.stderr)
            self.exit(2)
        if not arguments[0].startswith("-"):
            near = suggestion(arguments[0], self.verbs, or_all=False)
            self.error(f"unknown command `{arguments[0]}`{near}")
        self.parse_known_args(arguments[:1])  # ends here for --help and --version
        self._reject(arguments)

    def _reject(self, arguments: Sequence[str]) -> NoReturn:
        """Exit with a usage error about the first unknown option. If all options are known, the
        error is about the first surplus argument."""
        for argument in arguments:
            if argument.startswith("-"):
                option = argument.partition("=")[0]
                near = suggestion(option, self._option_string_actions, or_all=False)
                self.error(f"unknown option `{option}`{near}")
        self.error(f"unexpected argument `{arguments[0]}`")


def number(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return a function that parses a whole number from `low` to `high` (None: no upper limit)."""
    chosen = f"a number from {low} to {high}" if high else f"a number, {low} or more"

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < low or (high and int(text) > high):
            raise argparse.ArgumentTypeError(f"expected {chosen}, got {text!r}")
        return int(text)

    return parse
