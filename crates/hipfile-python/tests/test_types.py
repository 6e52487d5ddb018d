"""The annotations: complete, consistent, and true of the native half."""

import subprocess
import sys
from pathlib import Path

import hipfile

HERE = Path(__file__).parents[1]
CONFIG = HERE / "pyproject.toml"


def run(*words, cwd):
    done = subprocess.run([sys.executable, "-m", *words], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_is_typed(tmp_path):
    assert (Path(hipfile.__file__).parent / "py.typed").is_file()
    run("mypy", "--config-file", str(CONFIG), "--cache-dir", str(tmp_path), str(HERE / "python/hipfile"), cwd=tmp_path)


def test_the_stubs_are_those_of_the_native_half(tmp_path):
    run("mypy.stubtest", "--mypy-config-file", str(CONFIG), "--concise", "--ignore-missing-stub", "hipfile._core", cwd=tmp_path)


def test_everything_public_is_documented():
    for name in hipfile.__all__:
        thing = getattr(hipfile, name)
        if name in ("AUTO", "__version__"):
            continue
        assert thing.__doc__, name
        for member, value in vars(thing).items() if isinstance(thing, type) else ():
            if not member.startswith("_") and (callable(value) or isinstance(value, (property, classmethod, staticmethod))):
                assert value.__doc__, f"{name}.{member}"
