"""Files whose headers somebody has changed at random: each is read, or refused with an error for files."""

import os
import random

import numpy
import pytest

from hipfile import load_npy, load_safetensors, safetensors_header
from test_formats import build

#: More for long runs.
ROUNDS = int(os.environ.get("HIPFILE_TEST_OPS", 400))
#: What a wrong file may give; SafetensorsError is a ValueError.
REFUSALS = (ValueError, TypeError, EOFError, OSError, OverflowError)


def change(contents, chance):
    """Flips, cuts, repeats and puts numbers where they do not belong."""
    contents = bytearray(contents)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(contents) + 1)
        match chance.randrange(5):
            case 0 if at < len(contents):
                contents[at] ^= 1 << chance.randrange(8)
            case 1:
                del contents[at : at + chance.randrange(1, 40)]
            case 2:
                contents[at:at] = contents[at : at + chance.randrange(1, 40)]
            case 3:
                contents[at:at] = chance.choice([b"9" * 30, b"-1", b"[", b"{}", b'"', b"\xff", b"1e999", b"null", b"(", b","])
            case _:
                contents[at:] = b""
        if not contents:
            break
    return bytes(contents)


@pytest.mark.parametrize("seed", [1, 2])
def test_headers_changed_at_random_are_read_or_refused(tmp_path, seed):
    chance = random.Random(seed)
    good = {}
    numpy.save(tmp_path / "good.npy", numpy.arange(12, dtype=numpy.float32).reshape(3, 4))
    good["npy"] = (tmp_path / "good.npy").read_bytes()
    build(tmp_path / "good.safetensors", {"a": ("F32", [2, 2], bytes(16)), "b": ("U8", [3], b"abc")}, {"k": "v"})
    good["safetensors"] = (tmp_path / "good.safetensors").read_bytes()
    refused = 0
    for number in range(ROUNDS):
        kind = chance.choice(["npy", "safetensors"])
        path = tmp_path / f"bad.{kind}"
        path.write_bytes(change(good[kind], chance))
        for load in [load_npy] if kind == "npy" else [safetensors_header, load_safetensors]:
            try:
                load(path)
            except REFUSALS as error:
                refused += 1
                assert len(str(error)) < 1000, (number, error)
    assert refused > ROUNDS / 4
