"""Schemas are read without Spark, and what is none is told."""

import pytest

from eos.config.ddl import columns


def names(text: str) -> list[str]:
    return [column.name for column in columns(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a BIGINT", ["a"]),
        ("a bigint, B String ,c DOUBLE", ["a", "B", "c"]),
        ("`order id` INT, `a``b` DATE", ["order id", "a`b"]),
        ("a DECIMAL, b DECIMAL(10), c NUMERIC(10, 2), d dec(3)", ["a", "b", "c", "d"]),
        ("a ARRAY<STRUCT<x: INT, `y z` MAP<STRING, ARRAY<DATE>>>>, b INT", ["a", "b"]),
        ("a INT NOT NULL COMMENT 'it, is', b INT NOT NULL COMMENT 'it''s'", ["a", "b"]),
        ("a TIMESTAMP_NTZ, b VARIANT, date DATE, `struct` INT", ["a", "b", "date", "struct"]),
    ],
)
def test_columns_are_found(text, expected):
    assert names(text) == expected


def test_columns_that_have_to_be_there_say_so():
    found = columns("a INT NOT NULL, b INT, c STRUCT<x: INT NOT NULL>, d INT NOT NULL COMMENT ''")
    assert [column.name for column in found if column.is_required] == ["a", "d"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a column name, got the end"),
        (
            "a",
            "expected the type of column `a`, such as BIGINT, DOUBLE, STRING or TIMESTAMP, got t",
        ),
        ("a BIGNT", "got `BIGNT`; did you mean `BIGINT`?"),
        ("a INT,", "expected a column name, got the end"),
        ("a INT b INT", "expected `,` or the end after column `a`, got `b`"),
        ("order-id INT", "expected the type of column `order`"),
        ("1 INT", "expected a column name, got `1`; put other names in backticks"),
        ("a ARRAY", "expected `<` after ARRAY, got the end"),
        ("a ARRAY<INT", "expected `>` at the end of ARRAY, got the end"),
        ("a MAP<STRING>", "expected `,` between the key's and the value's type of a MAP, got `>`"),
        ("a STRUCT<x INT", "expected `,` or `>` after column `x`, got the end"),
        ("a DECIMAL(x)", "expected a number in DECIMAL(...), got `x`"),
        ("a DECIMAL(10, 2, 1)", "expected `)` after the numbers of DECIMAL, got `,`"),
        ("a VARCHAR(5)", "expected the type of column `a`"),
        ("a: INT", "expected the type of column `a`, such as BIGINT, DOUBLE, STRING or TIMESTAMP"),
        ("a INT COMMENT 'x' NOT NULL", "expected `,` or the end after column `a`, got `NOT`"),
        ("a INT NOT", "expected NOT NULL after column `a`, got NOT the end"),
        ("a INT COMMENT x", "expected a text in quotes after COMMENT, got `x`"),
        ("a INTERVAL", "expected the type of column `a`"),
        ("a INT, A STRING", "expected unique column names, ignoring case: `a` appears twice"),
        ("a " + "ARRAY<" * 30 + "INT" + ">" * 30, "at most 20 levels of nesting"),
        ("a " + "STRUCT<a: " * 30 + "INT" + ">" * 30, "at most 20 levels of nesting"),
    ],
)
def test_what_is_no_schema_is_told(text, message):
    with pytest.raises(ValueError, match="expected") as caught:
        columns(text)
    assert message in str(caught.value)
