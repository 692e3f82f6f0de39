"""How much memory there is: the machine's, or what a control group leaves to the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def whole_memory() -> int | None:
    """Bytes of memory that this process may use at most; None if the system does not say."""
    known = (_bytes_of("MemTotal"), *_limits_of_groups())
    return min((size for size in known if size is not None), default=None)


def free_memory() -> int | None:
    """Bytes of the machine's memory that are free; None if the system does not say."""
    return _bytes_of("MemAvailable")


def _bytes_of(name: str) -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _limits_of_groups(
    own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> Iterator[int]:
    """Limits of the process's control groups, of both versions of Linux's interface.

    In a container, the path of a group may be the one outside, and its limit is at the root.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        folder, name = root, "memory.max"
        if kinds:  # version 1
            folder, name = root / "memory", "memory.limit_in_bytes"
        for place in (folder / path.lstrip("/") / name, folder / name):
            try:
                yield int(place.read_text())  # "max" is no number
                break
            except (OSError, ValueError):
                continue
