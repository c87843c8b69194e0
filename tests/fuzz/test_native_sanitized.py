"""The kernels under sanitizers: damaged record batches and columns never reach other memory."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from eos.kafka.records.batch_headers import HEADER_BYTES
from eos.native import build

pytestmark = pytest.mark.long
DRIVER = Path(__file__).with_name("native_driver.c")
FLAGS = ("-g", "-O1", "-std=c11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
ROUNDS = 1000
SHAPES = 24


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver with the kernels inside. A compiler without sanitizers can't link it."""
    compiler = build.compiler()
    if compiler is None:
        pytest.skip("this machine has no C compiler")
    target = tmp_path_factory.mktemp("driver") / "driver"
    command = [*compiler, *FLAGS, "-o", str(target), str(DRIVER)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and any(word in done.stderr for word in ("sanitize", "asan", "ubsan")):
        pytest.skip(f"{compiler[0]} has no sanitizers: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    return target


def records(shape: random.Random) -> list[tuple]:
    """Records of one kind: short or long, with or without nulls and headers."""
    longest = shape.choice([0, 10, 200, 9000])
    null_part, headers_max = shape.choice([0, 0.5, 1]), shape.choice([0, 3, 90])

    def blob(size_max: int) -> bytes | None:
        return None if shape.random() < null_part else shape.randbytes(shape.randint(0, size_max))

    return [
        (
            shape.randint(0, 2**41),
            blob(longest),
            blob(longest),
            [("n" * shape.randint(0, 9), blob(9)) for _ in range(shape.randint(0, headers_max))],
        )
        for _ in range(shape.choice([1, 3, 40]))
    ]


def corpus(path: Path) -> Path:
    """Sound record batches, as kafka-python makes them."""
    with path.open("wb") as file:
        for seed in range(SHAPES):
            builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
            listed = records(random.Random(seed))
            for at, (time, key, value, headers) in enumerate(listed):
                builder.append(at, time, key, value, headers)
            plain = bytes(builder.build())[HEADER_BYTES:]
            file.write(struct.pack("<qq", len(listed), len(plain)) + plain)
    return path


@pytest.mark.parametrize("seed", range(2))
def test_no_read_or_write_is_outside(driver: Path, tmp_path: Path, seed: int) -> None:
    done = subprocess.run(
        [str(driver), str(corpus(tmp_path / "corpus")), str(ROUNDS), str(seed)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    decoded, encoded, validated, parsed, written = (
        int(word) for word in done.stdout.split() if word.isdigit()
    )
    assert decoded > ROUNDS * SHAPES  # it got beyond the first record
    assert encoded > ROUNDS * SHAPES
    assert validated > ROUNDS * SHAPES
    assert parsed > ROUNDS * SHAPES
    assert written > ROUNDS * SHAPES
