"""Many small language models of one shape that are trained side by side, as one batch of matrix products.

A transformer of ten million parameters leaves most of a large GPU idle. Stacked, thirty of them cost hardly more time
than their arithmetic. Their parameters are disjoint, so each is trained as it would be alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

_HEAD = 64
"""Features of an attention head."""


@dataclass(frozen=True)
class Shape:
    """The shape of a transformer.

    Attributes
    ----------
    width, depth, vocabulary, length : int
        Features, layers, tokens that there are, and tokens of a sample.
    kind : torch.dtype
        Of the numbers that are multiplied.
    """

    width: int
    depth: int
    vocabulary: int = 4096
    length: int = 256
    kind: torch.dtype = torch.bfloat16

    @property
    def n_parameters(self) -> int:
        """Parameters of one model."""
        return 12 * self.depth * self.width**2 + self.vocabulary * self.width


class Ensemble(nn.Module):
    """Decoder-only transformers with rotary positions and tied embeddings.

    Parameters
    ----------
    shape : Shape
    seeds : sequence of int
        One for each model: models of one seed begin alike.
    """

    def __init__(self, shape: Shape, seeds: Sequence[int]) -> None:
        super().__init__()
        self.shape, self.n_models = shape, len(seeds)
        width, small = shape.width, 0.02 / math.sqrt(2 * shape.depth)
        sizes = {"embedding": ((shape.vocabulary, width), 0.02)}
        for layer in range(shape.depth):
            sizes[f"attend_{layer}"] = ((width, 3 * width), 0.02)
            sizes[f"gather_{layer}"] = ((width, width), small)
            sizes[f"widen_{layer}"] = ((width, 4 * width), 0.02)
            sizes[f"narrow_{layer}"] = ((4 * width, width), small)
        drawn: dict[int, dict[str, Tensor]] = {}
        for seed in set(seeds):
            generator = torch.Generator().manual_seed(seed)
            drawn[seed] = {
                name: scale * torch.randn(size, generator=generator) for name, (size, scale) in sizes.items()
            }
        self.matrices = nn.ParameterDict(
            {name: nn.Parameter(torch.stack([drawn[seed][name] for seed in seeds])) for name in sizes}
        )
        self.gains = nn.Parameter(torch.ones(2 * shape.depth + 1, len(seeds), 1, width))
        heads = width // _HEAD
        angles = torch.outer(torch.arange(shape.length), 10000.0 ** -(torch.arange(0, _HEAD, 2) / _HEAD))
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)
        self.heads = heads

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next tokens, of shape (n_models, batch * length, vocabulary).

        Parameters
        ----------
        tokens : Tensor of shape (n_models, batch, length)
        """
        kind = self.shape.kind
        part = {name: matrix.to(kind) for name, matrix in self.matrices.items()}
        gains = self.gains.to(kind)
        n_models, batch, length = tokens.shape
        embedding = part["embedding"]
        offsets = torch.arange(n_models, device=tokens.device)[:, None, None] * self.shape.vocabulary
        x = nn.functional.embedding(tokens + offsets, embedding.flatten(0, 1)).flatten(1, 2)
        for layer in range(self.shape.depth):
            whole = torch.bmm(_normed(x, gains[2 * layer]), part[f"attend_{layer}"])
            queries, keys, values = (
                one.transpose(1, 2) for one in whole.view(n_models * batch, length, 3, self.heads, _HEAD).unbind(2)
            )
            keys = self._turned(keys)
            # Half of the heads look for what follows a key: without them, models find out how to repeat late, and by
            # chance at different steps, which is more noise than the mixes make.
            half = self.heads // 2
            keys = torch.cat([keys[:, half:], nn.functional.pad(keys[:, :half, :-1], (0, 0, 1, 0))], dim=1)
            seen = nn.functional.scaled_dot_product_attention(self._turned(queries), keys, values, is_causal=True)
            x = x + torch.bmm(seen.transpose(1, 2).reshape_as(x), part[f"gather_{layer}"])
            wide = torch.bmm(_normed(x, gains[2 * layer + 1]), part[f"widen_{layer}"])
            x = x + torch.bmm(nn.functional.gelu(wide, approximate="tanh"), part[f"narrow_{layer}"])
        return torch.bmm(_normed(x, gains[-1]), embedding.transpose(1, 2))

    def one(self, k: int) -> dict[str, Tensor]:
        """Return the parameters of one model."""
        found = {name: matrix.detach()[k].clone() for name, matrix in self.matrices.items()}
        return found | {"gains": self.gains.detach()[:, k].clone()}

    @classmethod
    def joined(cls, shape: Shape, models: Sequence[dict[str, Tensor]]) -> Ensemble:
        """Return models that :meth:`one` returned, side by side."""
        found = cls(shape, [0] * len(models))
        for name, matrix in found.matrices.items():
            matrix.data = torch.stack([model[name] for model in models])
        found.gains.data = torch.stack([model["gains"] for model in models], 1)
        return found.to(found.gains.device)

    def _turned(self, x: Tensor) -> Tensor:
        """Turn pairs of features by angles that grow with the position."""
        length = x.shape[-2]
        cosines, sines = self.cosines[:length].to(x.dtype), self.sines[:length].to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)

    def losses(self, windows: Tensor) -> Tensor:
        """Return the log loss of every next token, of shape (n_models, batch, length).

        Parameters
        ----------
        windows : integer Tensor of shape (n_models, batch, length + 1)
        """
        logits = self(windows[..., :-1])
        targets = windows[..., 1:].reshape(-1)
        found = nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets, reduction="none")
        return found.view(len(windows), windows.shape[1], -1)


def _normed(x: Tensor, gain: Tensor) -> Tensor:
    return nn.functional.rms_norm(x, x.shape[-1:]) * gain


class Descent:
    """AdamW with a warm-up, a cosine to a tenth, and gradients clipped model by model."""

    def __init__(self, ensemble: Ensemble, steps: int, rate: float) -> None:
        self.ensemble, self.steps, self.rate = ensemble, steps, rate
        matrices = list(ensemble.matrices.values())
        self.adam = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": [ensemble.gains], "weight_decay": 0.0}],
            lr=rate,
            betas=(0.9, 0.95),
            fused=matrices[0].is_cuda,
        )
        self.taken = 0

    def step(self) -> None:
        """Move all models, and forget their gradients."""
        warm = max(self.steps // 20, 1)
        done = min(max(self.taken - warm, 0) / max(self.steps - warm, 1), 1.0)
        share = min((self.taken + 1) / warm, 0.1 + 0.45 * (1.0 + math.cos(math.pi * done)))
        for group in self.adam.param_groups:
            group["lr"] = self.rate * share
        gradients = [matrix.grad for matrix in self.ensemble.matrices.values()]
        squares = sum(gradient.flatten(1).square().sum(1) for gradient in gradients)
        squares = squares + self.ensemble.gains.grad.square().sum((0, 2, 3))
        shrunk = (1.0 / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient *= shrunk[:, None, None]
        self.ensemble.gains.grad *= shrunk[None, :, None, None]
        self.adam.step()
        self.adam.zero_grad(set_to_none=False)
        self.taken += 1


class Texts:
    """Windows of all sources on one device.

    Parameters
    ----------
    streams : mapping from source to array of tokens
    length : int
        Tokens of a sample.
    """

    def __init__(self, streams: dict[str, np.ndarray], length: int, device: str) -> None:
        windows, self.samples, begin = [], {}, 0
        for name, stream in streams.items():
            n_windows = (len(stream) - 1) // length
            places = np.arange(n_windows)[:, None] * length + np.arange(length + 1)
            windows.append(stream[places].astype(np.int32))
            self.samples[name] = range(begin, begin + n_windows)
            begin += n_windows
        self.windows = torch.as_tensor(np.concatenate(windows)).to(device)
        ends = [samples.stop for samples in self.samples.values()]
        self.sources = torch.as_tensor(np.searchsorted(ends, np.arange(begin), side="right")).to(device)

    def at(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return windows and the number of their source."""
        return self.windows[places].long(), self.sources[places]

    def first(self, n_windows: int) -> dict[str, Tensor]:
        """Return at most so many windows of each source, evenly spread over it."""
        found = {}
        for name, samples in self.samples.items():
            places = np.linspace(samples.start, samples.stop - 1, min(n_windows, len(samples))).round().astype(int)
            found[name] = self.windows[torch.as_tensor(places).to(self.windows.device)].long()
        return found
