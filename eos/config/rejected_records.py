"""The keys that decide about rejected source records: `on_error`, and the rules of `expect`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from eos.config.base import Condition, Strict, require_unique

Answer = Literal["fail", "dead_letter", "drop"]
MALFORMED = "malformed"  # reason of a record that can't be read; no rule may have this name
# The ledger topic of `eos replay` contains the rule's name, and Kafka allows 249 characters.
RULE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,49}$"


def _name(text: str) -> str:
    if text.lower() == MALFORMED:
        raise ValueError(
            f"expected a name other than `{MALFORMED}`, which is used for malformed records"
        )
    return text


class Rule(Strict):
    """An SQL condition on each source record, over the columns that the first step sees.

    A record is accepted if the condition is true, and rejected if it is false or null.
    """

    name: Annotated[str, Field(pattern=RULE_PATTERN), AfterValidator(_name)]
    rule: Condition
    on_error: Answer = "fail"


def rules_named_once(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    require_unique("rule names", (rule.name.lower() for rule in rules))
    return rules


Rules = Annotated[tuple[Rule, ...], AfterValidator(rules_named_once)]
