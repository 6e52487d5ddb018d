"""The programs in README.md and docs/ are run as they stand. What they take as given (a file, an array) is made here."""

import json
import re
import struct
from pathlib import Path

import numpy
import pytest

import hipfile

ROOT = Path(__file__).resolve().parents[3]


def blocks():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text()
        for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, block.start()) + 1
            yield pytest.param(block[1], id=f"{page.relative_to(ROOT)}:{line}")


BLOCKS = list(blocks())


def test_the_blocks_are_found():
    pages = {str(block.id).split(":")[0] for block in BLOCKS}
    assert {"README.md", "docs/start.md", "docs/python.md"} <= pages


@pytest.mark.parametrize("program", BLOCKS)
def test_a_program_runs(program, tmp_path, monkeypatch, capsys):
    for module in re.findall(r"^import (torch|cupy|jax)\b", program, re.MULTILINE):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    for name in ("data.bin", "weights.bin"):
        Path(name).write_bytes(bytes(4 << 20))
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    Path("model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    array = numpy.zeros((4, 4096), numpy.uint8)
    with hipfile.open("data.bin") as file:
        given = {"hipfile": hipfile, "array": array, "tensor": array, "file": file}
        given["wanted"] = [(0, 0), (1, 8192)]
        exec(compile(program, "program", "exec"), given)
    assert "False" not in capsys.readouterr().out
