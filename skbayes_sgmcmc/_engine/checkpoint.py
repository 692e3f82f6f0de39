"""Checkpoints of running chains: one ``.npz`` file, written atomically and without pickle."""

from __future__ import annotations

import glob
import json
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._arrays import Array
from .._data.ranks import ALONE, Ranks
from .._draws.storage import PROBE
from .._exceptions import CheckpointError, more, warn
from .._limits import LIMITS
from .fingerprint import fingerprint, same_probe, versions

if TYPE_CHECKING:
    from .chains import Chains


FORMAT = 5


class Checkpoint:
    """The checkpoint file of one run.

    It is replaced atomically at every write, and is kept after the run; a symbolic link is
    followed. Only a file with the same ``fingerprint``, a digest of data and parameters, written by
    the same versions of packages, is resumed. So must be its ``probe``: values, by name, of
    schedules and of the functions of the model and the sampler at fixed positions. Of ``ranks``
    that share the run, the first reads and writes it for all.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fingerprint: str,
        probe: dict[str, Array],
        ranks: Ranks = ALONE,
    ):
        self.path = Path(path).resolve()
        self.fingerprint = fingerprint
        self.probe = probe
        self.ranks = ranks
        #: arrays of the state, and draws and weights, which fill up
        self._latest: tuple[dict[str, Array], Array, Array] | None = None
        self._next = time.monotonic() + LIMITS.write_seconds

    def maybe_save(self, chains: Chains) -> None:
        """Remember the current state, and write it if enough time has passed."""
        probed = {f"probe/{name}": values for name, values in self.probe.items()}
        state = _snapshot(chains, self.fingerprint) | probed
        self._latest = state, chains.draws, chains.weights
        if time.monotonic() >= self._next:
            self.save_snapshot()

    def save_snapshot(self) -> bool:
        """Write the latest remembered state, if there is one; whether there is a file then."""
        if self.ranks.rank > 0:
            return True
        if self._latest is not None:
            self._write(*self._latest)
        return self.path.exists()

    def _write(self, state: dict[str, Array], draws: Array, weights: Array) -> None:
        started = time.monotonic()
        kept = int(state["kept"])
        arrays = state | {"draws": draws[:, :kept], "weights": weights[:kept]}
        try:
            write_atomically(self.path, arrays | {"digest": np.array(fingerprint(arrays))})
        except OSError as error:
            # the draws are safe in memory, so a failed write must not end the fit
            warn(
                f"checkpoint={str(self.path)!r} could not be written ({error}): the fit continues "
                "without it. Make room, or give a file on another disk.",
                "a-checkpoint-could-not-be-written",
            )
        spent = time.monotonic() - started
        self._next = time.monotonic() + max(LIMITS.write_seconds, spent / LIMITS.write_share)

    def load(self, chains: Chains) -> bool:
        """Restore the state of ``chains`` from the file; return False if there is no file yet.

        Raises
        ------
        CheckpointError
            The file is damaged or belongs to another fit. It is left unchanged.
        """
        precision = torch.finfo(chains.phi.dtype).eps
        arrays = self.ranks.by_first(lambda: self.read(precision))
        if arrays is not None:
            _restore(chains, arrays)
        return arrays is not None

    def read(self, precision: float) -> dict[str, Array] | None:
        """The arrays of the file, if they are this fit's; None if there is no file yet."""
        if not self.path.exists():
            return None
        arrays = self._read()
        if str(arrays["fingerprint"]) != self.fingerprint:
            raise self._foreign("data or parameters")
        kept = {name[6:]: values for name, values in arrays.items() if name[:6] == "probe/"}
        if not same_probe(self.probe, kept, precision):
            raise self._foreign(
                "functions (log density, module, augment, sampler, schedule: they return other "
                "values at the same positions, or use random numbers of their own)"
            )
        return arrays

    def _foreign(self, others: str, remedy: str = "give another file name") -> CheckpointError:
        return CheckpointError(
            f"checkpoint={str(self.path)!r} belongs to a fit with other {others} and was left "
            f"untouched: {remedy}, or delete it." + more("a-checkpoint-is-refused")
        )

    def _read(self) -> dict[str, Array]:
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            others = _other_versions(json.loads(str(arrays["versions"])))
            if not others and int(arrays["format"]) != FORMAT:
                raise ValueError(f"format {int(arrays['format'])}")
            if not others and str(arrays.pop("digest")) != fingerprint(arrays):
                raise ValueError("its contents are not those that were written")
        except Exception as error:  # numpy and zipfile raise all kinds of errors on other files
            raise CheckpointError(
                f"checkpoint={str(self.path)!r} can't be read and was left untouched ({error}): "
                "give another file name, or delete it to start anew."
                + more("a-checkpoint-is-refused")
            ) from error
        if others:  # which may also have another format or digest
            raise self._foreign(f"versions ({others})", "finish it with the versions of the file")
        return arrays


def _other_versions(found: dict[str, str]) -> str:
    """Versions of a file that differ from those in use, as a text."""
    changed = {name: version for name, version in versions().items() if found[name] != version}
    return ", ".join(f"{name} {found[name]}, now {changed[name]}" for name in changed)


def _snapshot(chains: Chains, fingerprint: str) -> dict[str, Array]:
    rng = chains.rng.get_state()
    meta = {"alive": chains.alive, "cursor": asdict(chains.cursor), "rows": rng["rows"]}
    arrays: dict[str, Any] = {
        "format": np.array(FORMAT),
        "versions": np.array(json.dumps(versions())),
        "fingerprint": np.array(fingerprint),
        "kept": np.array(chains.cursor.kept),
        "meta": np.array(json.dumps(meta)),
        "phi": chains.phi.cpu().numpy().copy(),
        "noise": rng["noise"],
    }
    for prefix, tensors in (("sampler", chains.state or {}), ("model", chains.model_state)):
        arrays |= {f"{prefix}/{k}": v.cpu().numpy().copy() for k, v in tensors.items()}
    return arrays


def _restore(chains: Chains, arrays: dict[str, Array]) -> None:
    meta, kept = json.loads(str(arrays["meta"])), int(arrays["kept"])
    device = chains.phi.device

    def tensors(prefix: str) -> dict[str, torch.Tensor]:
        start = len(prefix) + 1
        return {
            name[start:]: torch.from_numpy(values.copy()).to(device)
            for name, values in arrays.items()
            if name.startswith(prefix + "/")
        }

    chains.alive = list(meta["alive"])
    chains.phi = torch.from_numpy(arrays["phi"].copy()).to(device)
    chains.rng = chains.rng.select(chains.alive)
    chains.rng.set_state({"noise": arrays["noise"], "rows": meta["rows"]})
    chains.state, chains.model_state = tensors("sampler"), tensors("model")
    chains.draws[:, :kept] = arrays["draws"]
    chains.weights[:kept] = arrays["weights"]
    diverged = {int(chain): step for chain, step in meta["cursor"].pop("diverged").items()}
    chains.cursor = replace(chains.cursor, **meta["cursor"], diverged=diverged)
    chains.resume()


def write_atomically(path: Path, arrays: dict[str, Any]) -> None:
    """Write an ``.npz`` file next to ``path``, then move it, so that no reader sees half a file."""
    prefix = f"{path.name[:200]}{PROBE}"
    _remove_abandoned(path.parent, prefix)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            locked = _lock(file)
            np.savez(file, **arrays)  # without allow_pickle, which numpy 2.0 takes for an array
            file.flush()
            os.fsync(file.fileno())
            if locked:  # until it has its name, so that no other process removes it
                os.replace(temporary, path)
        if not locked:  # Windows moves no file that is open
            os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove what killed processes have left of their writes: the files that nobody has locked."""
    for left in folder.glob(f"{glob.escape(prefix)}*.tmp"):
        with suppress(OSError), open(left, "rb") as file:
            if _lock(file):
                left.unlink()


def _lock(file: Any) -> bool:
    """Lock a file until it is closed or its process ends; whether that was possible."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):  # Windows; another process has it, or a disk without locks
        return False
    return True
