"""Do two DataFrames have the same columns and rows?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def require_same_rows(found: DataFrame, expected: DataFrame, *, in_order: bool = False) -> None:
    """Raise an error unless both DataFrames have the same columns, types and rows.

    The error shows the rows that differ, as chispa prints them. The order of rows matters only with
    `in_order`. A column may be nullable in one of them alone, and NaN equals NaN.
    """
    try:
        from chispa import assert_df_equality
    except ImportError as error:
        raise UsageError(
            "test_chispa_missing",
            "chispa compares DataFrames, and it is not installed",
            hint='install the test kit: pip install "spark-eos[testing]"',
        ) from error
    assert_df_equality(
        found,
        expected,
        ignore_nullable=True,
        allow_nan_equality=True,
        ignore_row_order=not in_order,
    )
