"""Random heterogeneous problems for every loss, and their minima found in a slow and sure way."""

import numpy as np
from scipy import optimize, sparse

from counterpoise.contexts import Contexts
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.oracle.linear import EachContext
from counterpoise.losses import Huber, Logistic, Multinomial, Newsvendor, Pinball, Poisson, Squared

SMOOTH = [Logistic(), Multinomial(3), Squared(), Huber(0.8), Poisson()]
SHARP = [Pinball(0.3), Newsvendor(10.0)]
LOSSES = SMOOTH + SHARP

TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""What the linear programs ask of HiGHS."""


def scattered(rng, n, d, density):
    """Return rows of which few entries are not zero; the oldest scipy takes no generator for its own."""
    count = round(density * n * d)
    where = rng.choice(n * d, count, replace=False)
    return sparse.csr_array((rng.random(count), np.divmod(where, d)), shape=(n, d))


def make(loss, n_contexts, n_features, seed, rows=(15, 60)):
    """Return ``(X, y, codes)``: contexts with coefficients of their own, the first five times larger, rows mixed."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(rows[0], rows[1] + 1, n_contexts)
    sizes[0] *= 5
    codes = rng.permutation(np.repeat(np.arange(n_contexts), sizes))
    X = rng.normal(rng.normal(0.0, 0.5, (n_contexts, n_features))[codes], 1.0)
    shared = rng.normal(size=n_features)
    own = shared + rng.normal(0.0, 0.7, (n_contexts, n_features))
    z = np.einsum("nd,nd->n", X, own[codes]) + rng.normal(0.0, 0.7, n_contexts)[codes]
    return X, _target(loss, z, codes, rng), codes


def _target(loss, z, codes, rng):
    n, noise = len(z), rng.uniform(0.5, 1.5, codes.max() + 1)[codes]
    if loss.name == "logistic":
        return (z + rng.logistic(size=n) > 0).astype(np.float64)
    if loss.name == "multinomial":
        # Cut a noisy score in as many slices as there are classes.
        return np.searchsorted(np.linspace(-0.8, 0.8, loss.n_classes - 1), z + rng.normal(size=n)).astype(np.float64)
    if loss.name == "poisson":
        return rng.poisson(np.exp(np.clip(0.5 * z, -3.0, 3.0))).astype(np.float64)
    if loss.name == "newsvendor":
        cost = loss.price * rng.uniform(0.1, 0.9, n)
        return np.column_stack([cost, np.maximum(15.0 + 2.0 * z + noise * rng.normal(size=n), 0.0)])
    # A few far-off rows, so that both pieces of the Huber loss are met.
    return z + noise * rng.standard_t(3, n)


def referee_arguments(loss):
    """Return a loss as the referees want it: its name and its parameters."""
    names = ("n_classes", "delta", "quantile", "price")
    return {"loss": loss.name} | {name: getattr(loss, name) for name in names if hasattr(loss, name)}


def oracle_of(loss, X, y, codes, **options):
    """Return the linear oracle of rows whose contexts are numbered."""
    codes = np.asarray(codes)
    contexts = Contexts(np.arange(codes.max() + 1), codes.astype(np.intp))
    return LinearOracle.from_rows(X, loss.checked_target(y), contexts, loss, **options)


def each_of(oracle, contexts, theta, padded=True):
    """Return some contexts of an oracle, each at parameters of its own: one theta for all, or one for each."""
    part = (oracle.rows.padded if padded else oracle.rows.grouped)(np.asarray(contexts))
    return EachContext(part, oracle.alpha, np.broadcast_to(theta, (len(contexts), oracle.n_parameters)).copy())


def random_distribution(n_contexts, rng):
    """Return a distribution that may be very uneven."""
    p = rng.random(n_contexts) ** rng.choice([1.0, 8.0])
    return p / p.sum()


def mixed_weights(codes, p, sample_weight=None):
    """Return the weight of each row in ``sum_c p_c risk_c``."""
    weight = np.ones(len(codes)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    return weight / np.bincount(codes, weight)[codes] * np.asarray(p)[codes]


def design_of(X, fit_intercept):
    """Return the features, and a column of ones where there is an intercept."""
    return np.column_stack([X, np.ones(len(X))]) if fit_intercept else np.asarray(X, dtype=np.float64)


def weighted_risk(loss, X, y, weight, theta, alpha=0.0, fit_intercept=True):
    """Return ``sum_i weight_i loss_i + alpha / 2 |coef|^2``, written out."""
    matrix = np.reshape(theta, (loss.n_outputs, -1))
    z = design_of(X, fit_intercept) @ matrix.T
    rows = loss.value(y, z[:, 0] if loss.n_outputs == 1 else z)
    coef = matrix[:, : np.shape(X)[1]]
    with np.errstate(over="ignore"):
        return float(weight @ rows + 0.5 * alpha * np.sum(coef**2))


def minimise(loss, X, y, weight, alpha=0.0, fit_intercept=True):
    """Return the least weighted risk and a theta that attains it, or comes as near as floats can.

    Newton steps through a singular value decomposition of the rows themselves, never of their Gram matrix, so that
    columns may be scaled badly and be nearly the same. A piecewise linear loss, without a ridge, is a linear program.
    """
    if loss.name in ("pinball", "newsvendor"):
        assert alpha == 0.0
        return _linear_program(loss, X, y, weight, fit_intercept)
    # An intercept makes the place of each column irrelevant. Around zero a column of 1e7 rounds predictions at 1e-9:
    # no lower value is then seen although coefficients are still 1e-6 away.
    places = np.mean(X, axis=0) if fit_intercept else np.zeros(np.shape(X)[1])
    design = design_of(X - places, fit_intercept)
    scale = np.abs(design).max(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    penalty = np.zeros((loss.n_outputs, design.shape[1]))
    penalty[:, : len(places)] = alpha / scale[: len(places)] ** 2
    theta = np.zeros(penalty.size)
    for easier in _ever_harder(loss, y):
        best, theta = _newton(easier, design / scale, y, weight, penalty.ravel(), theta)
    matrix = theta.reshape(loss.n_outputs, -1) / scale
    if fit_intercept:
        matrix[:, -1] -= matrix[:, :-1] @ places
    return best, matrix.ravel()


def _ever_harder(loss, y):
    """Return losses that lead to this one: a Huber loss is nearly quadratic where delta is large."""
    if loss.name != "huber":
        return [loss]
    factor = max(float(np.abs(y).max()) / loss.delta, 1.0)
    return [Huber(loss.delta * factor**share) for share in np.linspace(1.0, 0.0, 1 + int(np.ceil(np.log2(factor))))]


def _newton(loss, rows, y, weight, penalty, theta):
    """Return the least value and the theta that attains it, from a start."""

    def value(theta):
        z = rows @ theta.reshape(loss.n_outputs, -1).T
        with np.errstate(over="ignore"):
            return float(weight @ loss.value(y, z[:, 0] if loss.n_outputs == 1 else z) + 0.5 * penalty @ theta**2)

    best = value(theta)
    for _ in range(300):
        before = best
        for bend in (loss.curvature, loss.majorant):
            trial = _descend(value, theta, best, *_newton_model(loss, rows, y, weight, penalty, theta, bend))
            if trial is not None:
                theta, best = trial
                break
        if before - best <= 1e-16 * abs(best):
            break
    return best, theta


def _newton_model(loss, rows, y, weight, penalty, theta, bend):
    """Return the gradient, and the singular values and vectors of a root of the Hessian."""
    outputs = loss.n_outputs
    z = rows @ theta.reshape(outputs, -1).T
    z = z[:, 0] if outputs == 1 else z
    slopes = loss.gradient(y, z).reshape(len(rows), outputs)
    gradient = ((weight[:, None] * slopes).T @ rows).ravel() + penalty * theta
    curvature = bend(y, z)
    if curvature is None:
        return gradient, None, None
    values, vectors = np.linalg.eigh(curvature.reshape(len(rows), outputs, outputs))
    root = vectors * np.sqrt(np.maximum(values, 0.0) * weight[:, None])[:, None, :]
    stacked = np.einsum("nkm,nd->nmkd", root, rows).reshape(len(rows) * outputs, -1)
    _, sizes, directions = np.linalg.svd(np.vstack([stacked, np.diag(np.sqrt(penalty))]), full_matrices=False)
    return gradient, sizes, directions


def _descend(value, theta, best, gradient, sizes, directions):
    """Return a lower point along damped Newton steps; None where there is none."""
    if sizes is None:
        return None
    for damping in (0.0, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0):
        # Along a null direction the gradient is rounding, and a step there would only spoil the predictions.
        kept = sizes > 1e-12 * sizes.max()
        filtered = np.where(kept, 1.0 / np.maximum(sizes**2, (damping * sizes.max()) ** 2 + 1e-300), 0.0)
        step = -directions.T @ (filtered * (directions @ gradient))
        for length in (1.0, 0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-6):
            trial = value(theta + length * step)
            if trial < best:
                return theta + length * step, trial
    return None


def _linear_program(loss, X, y, weight, fit_intercept):
    """Minimise with one variable per row for the loss above its kink's height."""
    kink, height, left, right = loss.pieces(y)
    design = design_of(X, fit_intercept)
    n, width = design.shape
    rows = np.vstack([left[:, None] * design, right[:, None] * design])
    constraint = np.hstack([rows, -np.vstack([np.eye(n), np.eye(n)])])
    answer = optimize.linprog(
        np.concatenate([np.zeros(width), weight / weight.max()]),
        constraint,
        np.concatenate([left * kink, right * kink]),
        bounds=[(None, None)] * (width + n),
        options=TIGHT,
    )
    assert answer.status == 0, answer.message
    return float(weight.max() * answer.fun + weight @ height), answer.x[:width]
