"""Turn an SQL step into a Spark plan.

A query reads the previous step as `input`, and earlier steps by their names. These names are
temporary views only while Spark parses the query. Spark copies their plans into the query's plan at
once, so no view of a micro-batch is left in the session. The query's text has no placeholders:
braces and dollars have Spark's meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eos import sql_text
from eos.errors import TransformError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE_BYTES_MAX = 1_048_576


@dataclass(frozen=True, slots=True)
class Query:
    """The SQL query of a step. Messages name it by `label`; later steps read its rows by `name`."""

    text: str
    label: str
    name: str = ""
    file: str = ""


def read(file: str, folder: Path) -> str:
    """Return the text of a query file. `file` is relative to the pipeline's folder.

    Raise TransformError if the file can't be read or is not one query."""
    path = folder / file
    try:
        with path.open("rb") as opened:
            raw = opened.read(_FILE_BYTES_MAX + 1)
        if len(raw) > _FILE_BYTES_MAX:
            raise TransformError(
                "sql_file_too_large",
                f"the SQL file {path} is larger than {_FILE_BYTES_MAX} bytes",
                hint="check the path in `file`; a large query can be split into several steps",
            )
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise TransformError(
            "sql_file_not_utf8",
            f"the SQL file {path} is not UTF-8 text ({error})",
            hint="save the file as UTF-8, or correct the path",
        ) from error
    except OSError as error:
        raise TransformError(
            "sql_file_unreadable",
            f"the SQL file {path} can't be read: {error.strerror}",
            hint="correct `file`, which is relative to the pipeline's folder, or the file's "
            "permissions",
        ) from error
    problem = sql_text.not_a_query(text)
    if problem:
        raise TransformError(
            "sql_file_invalid",
            f"the SQL file {path} is invalid: {problem}",
            hint="write one query into the file, which only reads",
        )
    return text


def run_query(query: Query, frame: DataFrame, stages: Mapping[str, DataFrame]) -> DataFrame:
    """Return the query's rows, without running a Spark job.

    `frame` has the rows of the previous step, `stages` those of named steps and lookup tables."""
    spark = frame.sparkSession
    used = sql_text.names(query.text)
    known = {sql_text.INPUT: frame, **stages}
    try:
        with ExitStack() as views:
            for name, stage in known.items():
                if name.lower() in used:
                    views.enter_context(_view(spark, name, stage))
            return spark.sql(sql_text.stripped(query.text))
    except Exception as error:
        raise _query_error(query.label, list(known), error) from error


def _query_error(query: str, known: Sequence[str], error: Exception) -> TransformError:
    reason = message_of(error)
    if "TABLE_OR_VIEW_NOT_FOUND" in reason:
        reason = reason.split(" Verify the spelling")[0]  # the rest is advice about DROP VIEW
        tables = ", ".join(f"`{name}`" for name in known)
        return TransformError(
            "sql_table_missing",
            f"{query} failed: {reason}",
            hint=f"correct the table's name: the query can read {tables}, and tables of Spark's "
            "catalog",
            reference=query,
        )
    if "TEMP_TABLE_OR_VIEW_ALREADY_EXISTS" in reason:
        return TransformError(
            "sql_view_name_taken",
            f"{query} failed: {reason}",
            hint="the Spark session has a view with the name of a step, a lookup table or `input`: "
            "rename the step or the table, or drop the view",
            reference=query,
        )
    return TransformError(
        "sql_query_failed",
        f"{query} failed: {reason}",
        hint="correct the query; `eos test` checks it without Kafka",
        reference=query,
    )


def message_of(error: BaseException) -> str:
    """Return an error's message without Spark's plans and stack traces, cut to 1,000 characters."""
    return str(error).split("\n\nJVM stacktrace")[0].split(";\n")[0].strip()[:1000]


@contextmanager
def _view(spark: SparkSession, name: str, frame: DataFrame) -> Iterator[None]:
    frame.createTempView(name)  # not createOrReplace: the user's session may have such a view
    try:
        yield
    finally:
        spark.catalog.dropTempView(name)
