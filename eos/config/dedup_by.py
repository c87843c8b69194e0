"""The keys of `dedup: {by: ...}`, which drops records with a known key within a period of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from eos.config import ddl
from eos.config.base import KAFKA_COLUMNS, DurationMs, Identifier, Strict
from eos.config.debezium import COLUMNS

if TYPE_CHECKING:
    from eos.config.source import Source

_TIMES = frozenset({"timestamp", "timestamp_ltz"})


class ByColumns(Strict):
    """Deduplication by columns.

    Records that agree in the columns `by` are duplicates if their times in the column `watermark`
    are less than `within` apart. The first one is accepted. Spark keeps the keys in the checkpoint.
    """

    by: tuple[Identifier, ...] = Field(min_length=1)
    within_ms: DurationMs = Field(alias="within")
    watermark: Identifier

    def require_fits(self, source: Source) -> None:
        """Raise ValueError if the source lacks a column, or `watermark` is not a TIMESTAMP.

        The columns of a Protobuf message, or of an Avro schema outside of the pipeline file, are
        not known here. The startup checks them.
        """
        lower = [name.lower() for name in self.by]
        twice = [name for at, name in enumerate(self.by) if name.lower() in lower[:at]]
        if twice:
            raise ValueError(f"expected unique columns in `dedup.by`: `{twice[0]}` appears twice")
        types = _types(source)
        if types is None:
            return
        kinds = {name.lower(): kind for name, kind in types.items()}
        fields = [("dedup.by", name) for name in self.by] + [("dedup.watermark", self.watermark)]
        for key, name in fields:
            if name.lower() not in kinds:
                raise ValueError(
                    f"expected columns of the source in `{key}`: it has no column `{name}` "
                    f"(it has {', '.join(f'`{each}`' for each in types)})"
                )
        kind = kinds[self.watermark.lower()]
        if kind and kind not in _TIMES:
            raise ValueError(
                "expected a column of type TIMESTAMP as `dedup.watermark`: "
                f"`{self.watermark}` has type {kind.upper()} (Kafka's own `timestamp` would do)"
            )


def _types(source: Source) -> dict[str, str] | None:
    """Return the type of each source column by name; an empty text if only Spark knows the type.

    Return None if a schema is not in the pipeline file, so that the names are unknown, too.
    """
    kafkas = ("binary", "binary", "array", "string", "int", "bigint", "timestamp", "int")
    types = dict(zip(KAFKA_COLUMNS, kafkas, strict=True))
    for read in (source.key, source.value):
        if isinstance(read, str):
            continue
        if read.column is not None:
            types[read.column] = "struct"
        elif read.debezium is not None:
            types |= COLUMNS
        elif read.json_schema is not None:
            types |= {each.name: each.kind for each in ddl.columns(read.json_schema)}
        elif isinstance(read.avro, str):
            types |= dict.fromkeys(read.names, "")
        else:
            return None
    return types
