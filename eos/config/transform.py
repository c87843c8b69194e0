"""The keys of a step, which transforms rows between source and sinks."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, Tag, model_validator

from eos.config import ddl
from eos.config.base import MAPPING, WORD, Identifier, Strict, require_unique, word_or_mapping
from eos.sql_text import INPUT, not_a_query

FUNCTION_PATTERN = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"


def _query(text: str) -> str:
    problem = not_a_query(text)
    if problem:
        raise ValueError(problem)
    return text


class SqlFile(Strict):
    """A path relative to the pipeline's folder."""

    file: str = Field(min_length=1)


Sql = Annotated[
    Annotated[str, AfterValidator(_query), Tag(WORD)] | Annotated[SqlFile, Tag(MAPPING)],
    word_or_mapping("expected a query, or a mapping with the key file"),
]


def _returns(text: str) -> str:
    """Validate a schema whose first column may be `*`."""
    first, comma, rest = text.partition(",")
    if first.strip() != "*":
        ddl.columns(text)
    elif comma:
        ddl.columns(rest)
    return text


Function = Annotated[str, Field(pattern=FUNCTION_PATTERN)]


class Step(Strict):
    """One step: a query, or a function.

    A query reads `input`, the output of the previous step. A function gets `with` as further
    arguments: `python` gets the whole DataFrame, `pandas` and `arrow` get some of its rows at a
    time and declare the columns that they return. Later queries may read a step by its `name`. A
    `python` step gets the `tables` that it names as further arguments, each a DataFrame.
    """

    name: Identifier | None = None
    python: Function | None = None
    arguments: dict[str, Any] = Field(default_factory=dict, alias="with")
    tables: tuple[Identifier, ...] = ()
    sql: Sql | None = None
    pandas: Function | None = None
    arrow: Function | None = None
    returns: Annotated[str, AfterValidator(_returns)] | None = None

    @model_validator(mode="after")
    def _is_one_of_four(self) -> Step:
        if [self.python, self.sql, self.pandas, self.arrow].count(None) != 3:
            raise ValueError("expected a step with one of `python`, `sql`, `pandas` and `arrow`")
        if self.sql is not None and self.arguments:
            raise ValueError("expected `with` only with a function: a query takes no arguments")
        takes_rows = self.pandas is not None or self.arrow is not None
        if takes_rows != (self.returns is not None):
            raise ValueError(
                "expected `returns` with `pandas` and `arrow`, and only with them: the columns "
                "that the function returns, such as `*, score DOUBLE`"
            )
        if self.tables and self.python is None:
            raise ValueError("expected `tables` only with `python`: a query reads tables by name")
        if self.name is not None and self.name.lower() == INPUT:
            raise ValueError(
                f"expected a name other than `{INPUT}`, which is the input of each step"
            )
        return self


def steps_named_once(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    require_unique("step names", (step.name.lower() for step in steps if step.name))
    return steps


Steps = Annotated[tuple[Step, ...], AfterValidator(steps_named_once)]
