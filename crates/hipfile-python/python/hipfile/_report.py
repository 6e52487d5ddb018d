"""What the package knows about the machine, the library and what was moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _core


@dataclass(frozen=True, slots=True)
class Availability:
    """Which GPUs there are. True if there is a real one; as text it explains."""

    #: One dictionary each: ``ordinal``, ``name``, ``runtime``, ``runtime_version``, ``emulated``, ``note``, ``pci``.
    devices: list[dict[str, Any]]
    #: Why a runtime does not serve, by its name; None for one that does, and for one that nobody asked for.
    runtimes: dict[str, str | None]
    #: Why there is none at all, not even the emulated one.
    reason: str | None

    @property
    def emulated(self) -> bool:
        """Whether the emulated GPU is all there is."""
        return bool(self.devices) and not self

    def __bool__(self) -> bool:
        return any(not device["emulated"] for device in self.devices)

    def __str__(self) -> str:
        lines = [
            f"GPU {device['ordinal']}: {device['name']} ({device['runtime']} {device['runtime_version']})"
            + (", emulated: no real GPU memory is involved" if device["emulated"] else "")
            for device in self.devices
        ]
        lines += [f"{name}: {why}" for name, why in self.runtimes.items() if why]
        return "\n".join([*lines, *([self.reason] if self.reason else [])])


def available() -> Availability:
    """Which GPUs there are, and why not. Loads the GPU runtimes that are installed."""
    devices, reason = _core.devices()
    real = [device for device in devices if not device["emulated"]]
    # One that is merely installed is not drawn into a process that uses another.
    runtimes: dict[str, str | None]
    runtimes = {device["runtime"]: None for device in real} if real else _core.runtimes()
    return Availability(devices, runtimes, reason)


def stats() -> dict[str, Any]:
    """What this process has moved since it first opened the driver.

    ``read`` and ``write`` each have ``bytes``, ``engines`` (operations, bytes and errors by engine) and ``staged``
    (operations and bytes by the reason why they did not go direct); ``batches`` and ``streams`` have counts; ``emulated``
    says whether the GPU is the emulated one, None before one was used.
    """
    return _core.stats()


def check() -> dict[str, Any]:
    """Whether this machine can move bytes straight between storage and the memory of a GPU.

    Each question has ``answer`` (True, False, or None if it cannot be seen), ``found`` and ``advice``. The command
    ``hipfile check`` tells more.
    """
    return _core.check()


def settings() -> dict[str, bool | int | str]:
    """The settings in force, by the names of docs/environment.md."""
    return _core.settings()
