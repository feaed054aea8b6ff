"""A certified last layer on a GPU: seconds and certificate, beside scikit-learn on the CPU and SGD on the same head.

Usage: python benchmarks/gpu_head.py [--rows 1000000] [--features 512] [--contexts 20] [--epochs 20] [--toy]

Features are normal, targets binary; contexts have shares that fall geometrically and heads that differ. ``RobustHead``
is timed twice, with a given ridge and with everything that ``fit`` does by itself (references, choice of the ridge,
comparison with the network's own layer). Then scikit-learn's ``LogisticRegression`` (lbfgs, all cores), and epochs of
SGD with the robust loss. Each line has the worst excess risk of a context, against the references of the first, on as
many new rows as a fifth of the data.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from counterpoise.torch import RobustHead, RobustLoss

RADIUS = 0.1
"""Of the set, in bits: at so many rows one that follows from them is next to nothing."""


def rows(n: int, d: int, n_contexts: int, seed: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, classes and contexts; the heads are the same for every seed."""
    fixed = torch.Generator().manual_seed(0)
    heads = torch.randn(d, generator=fixed) + 0.7 * torch.randn(n_contexts, d, generator=fixed)
    shares = 0.8 ** torch.arange(n_contexts, dtype=torch.float64)
    drawn = torch.Generator(device).manual_seed(1 + seed)
    X = torch.randn(n, d, generator=drawn, device=device)
    contexts = torch.multinomial(shares.to(device), n, replacement=True, generator=drawn)
    logits = torch.zeros(n, device=device)
    for c in range(n_contexts):
        own = contexts == c
        logits[own] = X[own] @ (2.0 / d**0.5 * heads[c]).to(device)
    y = (torch.rand(n, generator=drawn, device=device) < torch.sigmoid(logits)).long()
    return X, y, contexts


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    """Return what an action returns, and the seconds it takes until the device is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    begin = time.perf_counter()
    found = action()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return found, time.perf_counter() - begin


def sgd(X: Tensor, y: Tensor, contexts: Tensor, counts: Tensor, epochs: int, batch: int) -> nn.Linear:
    """Return a head trained by SGD with the robust loss."""
    layer = nn.Linear(X.shape[1], 2).to(X.device)
    loss = RobustLoss(counts.cpu().numpy(), radius=RADIUS).to(X.device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        for some in torch.randperm(len(X), device=X.device).split(batch):
            optimizer.zero_grad(set_to_none=True)
            losses = nn.functional.cross_entropy(layer(X[some]), y[some], reduction="none")
            loss(losses, contexts[some]).backward()
            optimizer.step()
    return layer


@torch.no_grad()
def risks(layer: nn.Linear, X: Tensor, y: Tensor, contexts: Tensor) -> np.ndarray:
    """Return the risk of each context."""
    losses = nn.functional.cross_entropy(layer(X), y, reduction="none").double()
    n = int(contexts.max()) + 1
    sums = torch.zeros(n, dtype=torch.float64, device=X.device).index_add_(0, contexts, losses)
    return (sums / torch.bincount(contexts, minlength=n)).cpu().numpy()


def main(arguments: Sequence[str] | None = None) -> int:
    """Time all of them, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"rows": 1_000_000, "features": 512, "contexts": 20, "epochs": 20}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--toy", action="store_true", help="a size at which it only has to run")
    asked = parser.parse_args(arguments)
    if asked.toy:
        asked.rows, asked.features, asked.contexts, asked.epochs = 2000, 8, 4, 2
    device = "cuda" if torch.cuda.is_available() else "cpu"
    X, y, contexts = rows(asked.rows, asked.features, asked.contexts, 0, device)
    new = rows(max(asked.rows // 5, 500), asked.features, asked.contexts, 1, device)
    counts = torch.bincount(contexts, minlength=asked.contexts)
    layer = nn.Linear(asked.features, 2).to(device)
    print(f"{asked.rows:,} x {asked.features} features, {asked.contexts} contexts, on {device}")

    def report(name: str, found: nn.Linear, seconds: float, more: str = "") -> None:
        own = risks(found, *new)
        excess = own - references
        print(f"{name:24s} {seconds:8.2f} s, worst excess {excess.max():.4f}, mean risk {own @ shares:.4f}{more}")

    # What is loaded and compiled at first use is no part of the fit.
    some = slice(0, min(asked.rows, 5000))
    RobustHead(radius=RADIUS, alpha=1e-3).fit_features(X[some], y[some], contexts[some], layer=layer)
    whole, whole_s = timed(lambda: RobustHead(radius=RADIUS).fit_features(X, y, contexts, layer=layer))
    references, shares = whole.references_.risks, (counts / counts.sum()).cpu().numpy()
    given, given_s = timed(
        lambda: RobustHead(radius=RADIUS, alpha=whole.alpha_, guard=False).fit_features(X, y, contexts, layer=layer)
    )
    _, fit_s = timed(lambda: type(given.estimator_)(**given.estimator_.get_params()).fit(**given.data_))
    certificate = given.certificate_
    proof = f", certified {certificate.relative_gap <= 1e-6}, gap {certificate.relative_gap:.1e}"
    report("head, all it does", whole.linear, whole_s, f", alpha {whole.alpha_:g}, kept {whole.chosen_}")
    report("head, ridge given", given.linear, given_s, proof)
    report("  its certified fit", given.linear, fit_s, proof)
    here = X.cpu().numpy(), y.cpu().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain, plain_s = timed(lambda: LogisticRegression(C=1.0 / (1e-3 * asked.rows)).fit(*here))
    peer = nn.Linear(asked.features, 2).to(device)
    with torch.no_grad():
        half = 0.5 * torch.tensor(np.concatenate([-plain.coef_, plain.coef_]))
        peer.weight.copy_(half)
        peer.bias.copy_(0.5 * torch.tensor(np.concatenate([-plain.intercept_, plain.intercept_])))
    report("scikit-learn, CPU", peer, plain_s, f", {int(plain.n_iter_[0])} iterations")
    trained, trained_s = timed(lambda: sgd(X, y, contexts, counts, asked.epochs, min(4096, asked.rows // 4)))
    report(f"SGD, {asked.epochs} epochs", trained, trained_s)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
