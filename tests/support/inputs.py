"""Inputs for parsers: damaged ones by the hundred thousand, and random schemas with JSON texts.

`damaged_inputs` changes bytes and words of a sound input, as a seed says. A JSON text fits its
schema, is unusual or is damaged."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator

INPUTS = int(os.environ.get("EOS_FUZZ_INPUTS", "100000"))  # of each parser, in the nightly run
WORDS = [b"null", b"true", b"-1", b"1e999", b"NaN", b"9" * 5_000, b"[" * 5_000, b"{}", b'""', b"0"]
WORDS += [b"\xff", b"\0", b"\n", b"", b"\x80" * 9, b"\xff" * 8, b"\x7f\xff\xff\xff", b": ", b"- "]

KINDS = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "DATE"),
    *("TIMESTAMP", "DECIMAL(10,2)", "DECIMAL(38,18)", "DECIMAL(4,4)", "DECIMAL(18,0)"),
)
NAMES = ("id", "a b", "name", "Name", "\u00e9", "x`y", "_", "val", "0", "a.b")
_NUMBERS = (
    *("0", "-0", "-0.0", "0.0", "1", "-1", "127", "128", "-128", "-129", "255", "256", "32767"),
    *("32768", "-32768", "2147483647", "2147483648", "-2147483648", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775808", "99999999999999999999", "1e2", "1E+2"),
    *("1.5", "1.50", "0.1", "0.05", "123456.789", "12345678.99", "0.00001", "1e-7", "1e400"),
    *("-1e400", "4.9e-324", "2.2250738585072012e-308", "1.7976931348623157e308", "3.4028236e38"),
    *("0.30000000000000004", "9007199254740993", "9007199254740993.0", "16777217", "16777217.0"),
    *("1.00000005960464477539", "0.1e1", "00", "01", "1.", ".5", "+1", "1e", "0x1", "NaN"),
    *("Infinity", "-Infinity", "1e5", "100000000000000000", "999999999999999999", "0e5", "-0e5"),
    *("9223372036854", "9223372036855", "-9223372036855", "1" * 70, "0." + "0" * 70 + "1"),
)
_TIMES = (
    *("2026-01-31", "2026-02-29", "2024-02-29", "1900-02-29", "2000-02-29", "0001-01-01"),
    *("0000-01-01", "9999-12-31", "10000-01-01", "2026-1-3", "2026-01", "2026", "2026-13-01"),
    *("1969-12-31T23:59:59.999999Z", "2026-01-31T00:00:00", "2026-01-31 23:59:59.5+05:30"),
    *("2026-01-31T23:59:59.1234567Z", "2026-01-31T24:00:00Z", "2026-01-31T23:59:60Z"),
    *("2026-01-31T23:59Z", "2026-01-31T23", "1582-10-10T00:00:00Z", "1582-10-10"),
    *("0001-01-01T00:00:00Z", "2026-03-29T02:30:00", "2026-01-31T00:00:00-18:00"),
    *("2026-01-31T00:00:00+17:59", "2026-01-31T", "2026-01-31T00:00:00.Z"),
    *("2026-01-31T00:00:00z", "2026-01-31T00:00:00 UTC", " 2026-01-31 "),
    *("2026-01-31T00:00:00Europe/Berlin", "2026-01-31T00:00:00.000001", "now", "12:00:00", ""),
    *("2026-01-31T00:00:00-00:00", "2026-01-31T00:00:00+1:00", "2026-01-31Z"),
    *("9999-12-31T23:59:59.999999-17:00",),
)
_STRINGS = (
    *("", "x", "caf\u00e9", "\U0001f600", "\u2028", "a" * 40, "\x7f", "null", "NaN", "\ufeff", "1"),
)
_ESCAPED = (
    *('"\\n\\t\\r\\b\\f\\/\\\\\\""', '"\\u00e9"', '"\\u0000"', '"\\ud83d\\ude00"', '"\\ud83d"'),
    *('"\\ude00"', '"\\ud83dx"', '"\\ud83d\\u0041"', '"\\u00g0"', '"\\x"', '"\\u12"', '"a\tb"'),
    *("'single'", '"\\\u00e9"', '"\\uD83D\\uDE00"', '"\\u00E9\\u0041"', '"' + "\\u0041" * 9 + '"'),
)
_OTHERS = ("null", "true", "false", "{}", "[]", '{"a": [1, {"b": null}]}', "[[[]]]", "tru", "None")


def damaged(source: random.Random, raw: bytes) -> bytes:
    """One to three places are cut, replaced or filled."""
    for _ in range(source.randrange(1, 4)):
        low = source.randrange(len(raw) + 1)
        high = min(len(raw), low + source.choice([0, 1, 1, 3, 40]))
        word = source.choice(WORDS) if source.random() < 0.7 else source.randbytes(2)
        raw = raw[:low] + word + raw[high:]
    return raw


def damaged_inputs(name: str, sound: bytes) -> Iterator[bytes]:
    """The same ones each time, for this name."""
    source = random.Random(f"{name} 11")
    for _ in range(INPUTS):
        yield damaged(source, sound)


def _number(chance: random.Random) -> str:
    made = chance.randrange(6)
    if made == 0:
        return str(chance.randrange(-(10 ** chance.randint(1, 20)), 10 ** chance.randint(1, 20)))
    if made == 1:
        return repr(chance.random() * 10.0 ** chance.randint(-30, 30))
    if made == 2:
        return f"{chance.uniform(-999, 999):.{chance.randint(0, 20)}f}"
    if made == 3:
        return f"{chance.randrange(10**19)}e{chance.randint(-330, 310)}"
    return chance.choice(_NUMBERS)


def _time(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return chance.choice(_TIMES)
    date = f"{chance.randint(1, 9999):04}-{chance.randint(1, 12):02}-{chance.randint(1, 31):02}"
    time = f"{chance.randint(0, 23):02}:{chance.randint(0, 59):02}:{chance.randint(0, 59):02}"
    part = chance.choice(["", f".{chance.randrange(10 ** chance.randint(1, 7))}"])
    zone = chance.choice(["", "Z", "+01:00", "-11:45", "+14:00"])
    return chance.choice([date, f"{date}{chance.choice('T ')}{time}{part}{zone}"])


def _plain(chance: random.Random, kind: str) -> str:
    """A value of the kind, as most records have them."""
    if kind == "BOOLEAN":
        return chance.choice(["true", "false"])
    if kind == "STRING":
        return json.dumps(chance.choice(_STRINGS), ensure_ascii=chance.random() < 0.3)
    if kind in ("DATE", "TIMESTAMP"):
        time = f"{chance.randint(1, 9999):04}-0{chance.randint(1, 9)}-{chance.randint(1, 28):02}"
        return json.dumps(time if kind == "DATE" else f"{time}T12:34:56.{chance.randrange(999)}Z")
    if kind in ("FLOAT", "DOUBLE"):
        return repr(chance.uniform(-1000, 1000) * 10.0 ** chance.randint(-9, 9))
    if kind.startswith("DECIMAL"):
        return "0.1234" if kind == "DECIMAL(4,4)" else str(chance.randrange(-(10**8), 10**8))
    return str(chance.randrange(-128, 128))


def _value(chance: random.Random, kind: str) -> str:
    """A value of the kind, or now and then of another one."""
    if chance.random() < 0.1:
        kind = chance.choice(KINDS)
    if chance.random() < 0.1:
        return chance.choice(_OTHERS)
    if kind == "BOOLEAN":
        return chance.choice(["true", "false"])
    if kind in ("DATE", "TIMESTAMP"):
        text = _time(chance) if kind == "TIMESTAMP" or chance.random() < 0.5 else _time(chance)[:10]
        return json.dumps(text) if chance.random() < 0.9 else _number(chance)
    if kind == "STRING":
        plain = json.dumps(chance.choice(_STRINGS), ensure_ascii=chance.random() < 0.3)
        return plain if chance.random() < 0.7 else chance.choice(_ESCAPED)
    if chance.random() < 0.03:
        return json.dumps(chance.choice([*_NUMBERS, "NaN", "Infinity", "-INF"]))
    return _number(chance)


def json_schema(chance: random.Random) -> list[tuple[str, str]]:
    """Names and kinds of columns. Some names differ only by case."""
    names = chance.sample(NAMES, chance.randint(1, len(NAMES) - 1))
    if "name" in names and "Name" in names:
        names.remove("Name")
    return [(name, chance.choice(KINDS)) for name in names]


def json_text(chance: random.Random, columns: list[tuple[str, str]]) -> bytes:
    """A JSON text for the schema: a plain one, or perhaps unusual and damaged."""
    if chance.random() < 0.4:
        names = (json.dumps(name, ensure_ascii=False) for name, _ in columns)
        values = (_plain(chance, kind) for _, kind in columns)
        listed = [f"{name}: {value}" for name, value in zip(names, values, strict=True)]
        return f"{{{', '.join(listed)}}}".encode()
    fields = [each for each in columns if chance.random() < 0.8]
    if chance.random() < 0.3:
        chance.shuffle(fields)
    if chance.random() < 0.05 and fields:
        fields.append(chance.choice(fields))
    others = [(chance.choice(["other", "ID", "Name", "__eos_raw", ""]), chance.choice(KINDS))]
    fields += others * chance.choice([0, 0, 1])
    space = chance.choice(["", "", " ", "\n\t ", "\r\n"])
    listed = []
    for name, kind in fields:
        key = json.dumps(name, ensure_ascii=chance.random() < 0.2)
        listed.append(f"{space}{key}{space}:{space}{_value(chance, kind)}{space}")
    whole = f"{space}{{{','.join(listed)}}}{space}".encode()
    if chance.random() < 0.1:
        whole += chance.choice([b"{}", b"x", b"\x00", b" ", b",", b"}", b"\xff"])
    if chance.random() < 0.15:
        return damaged_json(chance, whole)
    return whole


def damaged_json(chance: random.Random, whole: bytes) -> bytes:
    found = bytearray(whole)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(found) + 1)
        made = chance.randrange(4)
        if made == 0:
            del found[at:]
        elif made == 1:
            found[at:at] = chance.choice([b'"', b"\\", b"{", b"}", b",", b":", b"\xc3", b"0", b"'"])
        elif made == 2 and at < len(found):
            found[at] = chance.randrange(256)
        else:
            del found[at : at + chance.randint(1, 3)]
    return bytes(found)
