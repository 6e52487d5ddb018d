"""Fixtures of all tests. They run on the emulated GPU wherever there is no other, against the installed package."""

import os
import subprocess
import sys
import textwrap

import pytest

import hipfile
from hipfile import _core


@pytest.fixture(autouse=True)
def closed_driver():
    """Each test begins and ends with the driver closed, whatever it left open."""
    assert hipfile.Driver.use_count() == 0
    yield
    while hipfile.Driver.use_count():
        hipfile.Driver().close()


@pytest.fixture
def pattern():
    """Bytes that no other place of a file has: each word says where it is."""

    def make(length, seed=0):
        words = ((i * 0x9E3779B97F4A7C15 + seed) & (1 << 64) - 1 for i in range((length + 7) // 8))
        return b"".join(word.to_bytes(8, "little") for word in words)[:length]

    return make


@pytest.fixture
def data(tmp_path, pattern):
    """A file of 1 MiB and 777 bytes, and its contents."""
    contents = pattern((1 << 20) + 777)
    path = tmp_path / "data"
    path.write_bytes(contents)
    return path, contents


@pytest.fixture
def gpu():
    """Makes device memory of so many bytes, filled with a byte."""

    def make(nbytes, fill=0xEE):
        memory = _core.DeviceMemory(nbytes, 0)
        memory.upload(0, _core.HostView(bytes([fill]) * nbytes))
        return memory

    return make


@pytest.fixture
def python():
    """Runs a program in a fresh interpreter; gives exit code, standard output and standard error."""

    def run(program, **env):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **env},
        )
        return done.returncode, done.stdout, done.stderr

    return run


def pytest_terminal_summary(terminalreporter):
    """A skipped case is told as everywhere in the project."""
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"SKIP: {report.nodeid}: {reason.removeprefix('Skipped: ')}")
