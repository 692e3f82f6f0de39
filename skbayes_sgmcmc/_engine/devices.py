"""Where runs and predictions compute, and what ``device="auto"`` means.

A GPU does more multiplications in a second than a CPU, but takes longer to begin: CUDA needs two
seconds to start, and a step that is not recorded is mostly the time to launch operations. "auto"
compares an estimate of a run's multiplications with the sizes in ``LIMITS``, which were measured
(docs/results/gpu.md). The estimate depends on shapes and parameters alone, so that equal calls
choose the same device.
"""

from __future__ import annotations

from typing import Any

import torch

from .._exceptions import not_allowed
from .._limits import LIMITS
from .._validation import is_auto
from ..models.tuning.auto import AUTO


def resolve_device(device: Any) -> str:
    """The name of a given device.

    Raises
    ------
    ValueError
        The device is not available.
    """
    try:
        torch.zeros((), device=str(device)).item()  # fails unless the device stores numbers
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).partition("\n")[0]
        raise not_allowed(
            f"device={device!r} is not available here: give 'auto' or 'cpu'. ({reason})"
        ) from None
    return str(device)


def gpu() -> str | None:
    """The device that "auto" may mean besides the CPU, if there is one."""
    return "cuda" if torch.cuda.is_available() else None


def run_device(settings: Any, model: Any, n_rows: int) -> tuple[str, torch.dtype]:
    """The device of a run of a model with this number of rows, and the precision there."""
    if is_auto(settings.device):
        found = gpu()
        device = found if found is not None and pays(settings, model, n_rows) else "cpu"
    else:
        device = resolve_device(settings.device)
    single = model.single_precision
    return device, settings.resolve_dtype(device, model.n_parameters, single_precision=single)


def device_after(device: Any, fitted_on: str) -> str:
    """The device of a training that follows a fit: as given, or that of the fit if it is here."""
    if not is_auto(device):
        return resolve_device(device)
    return fitted_on if fitted_on.partition(":")[0] == gpu() else "cpu"


def pays(settings: Any, model: Any, n_rows: int) -> bool:
    """Whether a GPU is expected to make a run faster, its start included."""
    size = AUTO.batch_size if is_auto(settings.batch_size) else int(settings.batch_size)
    step = settings.n_chains * min(size, n_rows) * model.row_products
    least = LIMITS.gpu_recorded_step if model.recordable else LIMITS.gpu_step
    return bool(step >= least and step * settings.likely_steps >= LIMITS.gpu_run)


def prediction_device(device: Any, products: float, fitted_on: str = "cpu") -> str:
    """The device of a block of predictions; the CPU if a given one is not available.

    ``products`` is the number of multiplications of the block. A model that was fitted on a GPU
    need not wait for CUDA to start.
    """
    if is_auto(device):
        found, started = gpu(), not fitted_on.startswith("cpu")
        least = LIMITS.gpu_prediction if started else LIMITS.gpu_start * LIMITS.gpu_run
        return found if found is not None and products >= least else "cpu"
    try:
        return resolve_device(device)
    except ValueError:  # e.g. for models fitted elsewhere
        return "cpu"
