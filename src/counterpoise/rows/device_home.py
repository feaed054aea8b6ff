"""Linear models fitted where torch computes: the same problem and certificate, the rows on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoise.contexts import encode
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Loss
from counterpoise.oracle import LinearOracle
from counterpoise.problem import LinearProblem, check_alpha
from counterpoise.rows.device import TorchRows
from counterpoise.validation import checked_row_weights


def pose(
    X: Any,
    target: Any,
    contexts: Any,
    loss: Loss,
    *,
    alpha: float,
    fit_intercept: bool,
    sample_weight: Any,
    device: Any,
) -> LinearProblem:
    """Group rows by context on a device; targets have been checked by the caller."""
    try:
        place = X.device if isinstance(X, Tensor) and device is None else torch.device(device)
        rows = X.detach() if isinstance(X, Tensor) else torch.tensor(np.asarray(X))
        rows = rows.to(place)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise InvalidInputError(f"device {device!r} cannot be used ({error!s:.200}).") from error
    check_alpha(alpha)
    if rows.ndim != 2 or rows.is_complex():
        raise InvalidInputError(
            f"X is a tensor of shape {tuple(rows.shape)} and type {rows.dtype}; pass numbers in rows."
        )
    if rows.dtype not in (torch.float32, torch.float64):
        rows = rows.float() if rows.is_floating_point() else rows.double()
    if not bool(torch.isfinite(rows).all()):
        raise InvalidInputError("X holds NaN or infinity. Impute, or drop those rows.")
    if rows.shape[1] + fit_intercept == 0:
        raise InvalidInputError("there is nothing to fit: X has no columns and fit_intercept is False.")
    encoded = encode(contexts, len(rows))
    weight = checked_row_weights(sample_weight, encoded)
    if not (weight > 0).all():
        raise InvalidInputError("on a device, sample_weight must be positive. Drop the rows of no weight.")
    counts = np.bincount(encoded.codes, weight, len(encoded.labels)).astype(np.float64)
    held = TorchRows.of(
        rows,
        torch.as_tensor(np.asarray(target, dtype=np.float64), device=place),
        torch.as_tensor(weight / counts[encoded.codes], device=place),
        encoded.codes,
        len(encoded.labels),
        loss,
        fit_intercept,
    )
    return LinearProblem(LinearOracle(held, alpha), encoded, counts)
