"""The keys of a change event of Debezium: the columns of a table's rows, or the event's schema."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from eos.config import avro, ddl
from eos.config.avro import Avro
from eos.config.base import Strict

# The columns of each event, with their types in Spark.
COLUMNS = {"before": "struct", "after": "struct", "op": "string", "source_ts": "timestamp"}


def _row(text: str) -> str:
    ddl.columns(text)
    ddl.columns(f"row STRUCT<{text}>")  # one level deeper, which may be one too many
    return text


class Debezium(Strict):
    """A value that is a change event of Debezium.

    Its columns are `before`, `after`, `op` and `source_ts`. `json` is the schema of a table's row
    in Spark's notation; the events may have their own schema with them or not. `avro` is the schema
    of the whole event.
    """

    json_schema: Annotated[str, AfterValidator(_row)] | None = Field(default=None, alias="json")
    avro: Avro | None = None

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Debezium:
        if [self.json_schema, self.avro].count(None) != 1:
            raise ValueError("expected either `json` or `avro`")
        if self.avro is not None and avro.is_registered(self.avro):
            raise ValueError("expected no `register` in a source: only a sink registers its schema")
        return self
