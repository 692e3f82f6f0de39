"""Records of finished runs: one JSON-lines file for each benchmark, one line for each run.

A long benchmark stores the numbers of every run, so that an interrupted command goes on where it
stopped and a page can be written again without new runs. A record also holds what the numbers
depend on: the settings of the run, the package version, the commit and the machine. Records of
other settings, versions or machines than those of the run that asks for them are refused, because a
table that mixes them compares different things. All commits before a release are one version here.
"""

import collections
import datetime
import functools
import json
import os
import platform
import re
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import skbayes_sgmcmc

#: marks that a record, or one setting of it, does not say
UNKNOWN = "not recorded"
PACKAGES = ("torch", "numpy", "scikit-learn")


def machine(device="cpu"):
    """Kind of machine, e.g. ``2-core x86-64 CPU, 1 thread``; no names of hosts."""
    import torch

    if str(device).startswith("cuda"):
        return torch.cuda.get_device_name(device)
    cores = os.cpu_count()
    threads = torch.get_num_threads()
    kind = platform.machine().replace("_", "-")
    return f"{cores}-core {kind} CPU, {threads} thread{'s' * (threads > 1)}"


def release_of(found):
    """A version, with one for all commits before a release: 0.1.0.dev9+g48e3b29 is 0.1.0.dev0."""
    return re.sub(r"\.dev\d+.*", ".dev0", found)


@functools.cache
def commit():
    """The commit of this checkout, with "-dirty" if files differ from it; None outside of git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        found = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def _differences(key, found, expected):
    """Words for a setting that differs; of a dict, for its entries that do."""
    if found == expected:
        return []
    if not (isinstance(found, dict) and isinstance(expected, dict)):
        return [f"{key} {found!r} instead of {expected!r}"]
    words = []
    for name in sorted(found.keys() | expected.keys()):
        words += _differences(name, found.get(name, UNKNOWN), expected.get(name, UNKNOWN))
    return words


class Records:
    """The finished runs of one benchmark.

    Parameters
    ----------
    path : Path
        The JSON-lines file. It need not exist.
    constants : dict
        Settings that all runs of the benchmark share.
    no_new : bool
        Use stored records only. They are compared with each other, since they need not be from
        this version or machine.
    mix : bool
        Use records that differ, and remember how they differ (``differences``).
    device : str
        Where the runs compute.

    Attributes
    ----------
    used : dict of str to dict
        The records that were asked for, by name.
    differences : Counter
        In how many of them each difference occurs.
    """

    def __init__(self, path, constants=None, no_new=False, mix=False, device="cpu"):
        self.path, self.no_new, self.mix = Path(path), no_new, mix
        self.constants = constants or {}
        self.used, self.differences = {}, collections.Counter()
        version_here = release_of(skbayes_sgmcmc.__version__)
        self.here = {"version": version_here, "machine": machine(device)}
        self._stored, self._size = {}, 0

    def finished(self, name, run, settings):
        """The numbers (a dict) of a run that is stored; else of ``run()``, which are then stored.

        ``settings`` are what the numbers depend on besides the constants, by name. "seconds" of
        processor time are added, those of this process if ``run`` does not return others. None
        with ``no_new`` if the run is not stored.
        """
        numbers = self.stored(name, settings)
        if numbers is None and not self.no_new:
            start = time.process_time()
            numbers = run()
            seconds = numbers.pop("seconds", time.process_time() - start)
            self._append(name, settings, numbers, seconds)
            print(time.strftime("%H:%M:%S"), name, f"{seconds:.0f} s", flush=True)
            numbers = self.stored(name, settings)
        return numbers

    def stored(self, name, settings):
        """The numbers of a run if it is stored and comparable; None if it is not stored."""
        record = self._read().get(name)
        if record is None:
            return None
        if name not in self.used:
            found = self._compare(record, as_stored(self.constants | settings))
            if found and not self.mix:
                raise SystemExit(
                    f"{self.path} holds the run {name!r}, but it differs from the run that is "
                    f"asked for: {'; '.join(found)}. Give another file by --runs, or --mix-runs "
                    "to use such records all the same; the page then says so."
                )
            self.differences.update(found)
            self.used[name] = record
        return record["numbers"] | {"seconds": record["seconds"]}

    @property
    def seconds(self):
        """Processor time of the records in use."""
        return sum(record["seconds"] or 0.0 for record in self.used.values())

    def describe(self):
        """Where the records in use are from."""
        records = self.used.values()
        dates = sorted({record["date"][:10] for record in records if record["date"]})
        period = " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else UNKNOWN
        known, unknown = [], []
        for field in ("version", "machine", "python", *PACKAGES):
            values = {record.get(field) for record in records} - {None}
            if values:
                known.append(f"{field}: {', '.join(sorted(values))}")
            if any(record.get(field) is None for record in records):
                unknown.append(field)
        known += [f"{', '.join(unknown)} {UNKNOWN}"] * bool(unknown)
        return (
            f"{len(records)} stored runs ({period}), {self.seconds:.0f} s of processor time; "
            f"{'; '.join(known)}."
        )

    def describe_differences(self):
        """How the records in use differ from the run that asked for them; empty if they do not."""
        if not self.differences:
            return ""
        found = (f"{words} ({n} runs)" for words, n in sorted(self.differences.items()))
        return (
            "**Mixed runs** (`--mix-runs`): some records differ from the settings of this page or "
            f"do not hold them: {'; '.join(found)}."
        )

    def _compare(self, record, settings):
        """Each difference in words; empty if the record is comparable."""
        expected = self.here
        if self.no_new:  # with the first that is used
            first = next(iter(self.used.values()), record)
            expected = {field: first[field] for field in self.here}
        there = {field: record[field] for field in expected if record[field] is not None}
        there |= record["settings"]
        expected = expected | settings
        missing = [key for key in expected if key not in there]
        found = [f"{', '.join(missing)} {UNKNOWN}"] if missing else []
        for key in sorted((expected.keys() | there.keys()) - set(missing)):
            found += _differences(key, there[key], expected.get(key, UNKNOWN))
        return found

    def _read(self):
        """All records by name; read again where another process has added some."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size != self._size:
            self._stored = {record["name"]: record for record in read_records(self.path)}
            self._size = size
        return self._stored

    def _append(self, name, settings, numbers, seconds):
        record = {
            "name": name,
            "settings": as_stored(self.constants | settings),
            "numbers": numbers,
            "seconds": seconds,
            **self.here,
            "commit": commit(),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            **{package: version(package) for package in PACKAGES},
        }
        append_record(self.path, record)


def as_stored(settings):
    """Settings as they are read back; what JSON does not have is stored as its repr."""
    return json.loads(json.dumps(settings, default=repr))


def append_record(path, record):
    """Add one line by one write, so that other processes may add lines too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record) + "\n"
    # a run that was killed while it wrote has left a line without an end
    if path.exists() and path.read_bytes()[-1:] not in (b"", b"\n"):
        line = "\n" + line
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, line.encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def read_records(path):
    """The records of a file in their order; a line that was cut short is left out, and said."""
    records = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), 1):
        try:
            records.append(json.loads(line))
        except ValueError:
            print(f"{path}, line {number}: not a whole record, left out.", flush=True)
    return records
