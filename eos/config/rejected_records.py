"""What becomes of source records that are not taken: malformed ones, or against a rule."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from eos.config.base import Strict
from eos.sql_text import not_a_condition

Answer = Literal["fail", "dead_letter", "drop"]
MALFORMED = "malformed"  # what a record is called that can't be read; so no rule may be
# It stands in the names of topics and ids that `eos replay` uses: short enough for Kafka's 249.
RULE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,49}$"


def _name(text: str) -> str:
    if text.lower() == MALFORMED:
        raise ValueError(f"expected another name than `{MALFORMED}`: what can't be read has it")
    return text


def _condition(text: str) -> str:
    wrong = not_a_condition(text)
    if wrong:
        raise ValueError(wrong)
    return text


class Rule(Strict):
    """An SQL condition on a source record, over the columns that the first step sees. A record is
    taken if it is true; if it is false or null, it is not."""

    name: Annotated[str, Field(pattern=RULE_PATTERN), AfterValidator(_name)]
    rule: Annotated[str, Field(min_length=1), AfterValidator(_condition)]
    on_error: Answer = "fail"


def rules_named_once(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    names = [rule.name.lower() for rule in rules]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"expected each name of a rule once, `{twice[0]}` is there twice")
    return rules


Rules = Annotated[tuple[Rule, ...], AfterValidator(rules_named_once)]
