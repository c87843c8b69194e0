"""What came twice by a key of the business's own: which columns, and within which time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from eos.config import ddl
from eos.config.base import KAFKA_COLUMNS, DurationMs, Identifier, Strict

if TYPE_CHECKING:
    from eos.config.source import Source

_TIMES = frozenset({"timestamp", "timestamp_ltz"})


class ByColumns(Strict):
    """Of records that agree in the columns `by`, and whose times in the column `watermark` are less
    than `within` apart, the first is taken. Spark keeps the keys, in the checkpoint."""

    by: tuple[Identifier, ...] = Field(min_length=1)
    within_ms: DurationMs = Field(alias="within")
    watermark: Identifier

    def require_fits(self, source: Source) -> None:
        """Raises ValueError with what was expected. The columns of an Avro schema that lies in a
        file of its own are known to Spark alone, at the start."""
        lower = [name.lower() for name in self.by]
        twice = [name for at, name in enumerate(self.by) if name.lower() in lower[:at]]
        if twice:
            raise ValueError(f"expected each column of `dedup.by` once: `{twice[0]}` is twice")
        types = _types(source)
        if types is None:
            return
        kinds = {name.lower(): kind for name, kind in types.items()}
        named = [("dedup.by", name) for name in self.by] + [("dedup.watermark", self.watermark)]
        for key, name in named:
            if name.lower() not in kinds:
                raise ValueError(
                    f"expected columns that the source has in `{key}`: `{name}` is none of them "
                    f"(there is {', '.join(f'`{each}`' for each in types)})"
                )
        kind = kinds[self.watermark.lower()]
        if kind and kind not in _TIMES:
            raise ValueError(
                "expected a column of type TIMESTAMP as `dedup.watermark`: "
                f"`{self.watermark}` is {kind.upper()}; Kafka's own `timestamp` is one"
            )


def _types(source: Source) -> dict[str, str] | None:
    """Of each column; empty where only Spark knows. None: the names are not known either."""
    kafkas = ("binary", "binary", "array", "string", "int", "bigint", "timestamp", "int")
    types = dict(zip(KAFKA_COLUMNS, kafkas, strict=True))
    for read in (source.key, source.value):
        if isinstance(read, str):
            continue
        if read.column is not None:
            types[read.column] = "struct"
        elif read.json_schema is not None:
            types |= {each.name: each.kind for each in ddl.columns(read.json_schema)}
        elif isinstance(read.avro, str):
            types |= dict.fromkeys(read.names, "")
        else:
            return None
    return types
