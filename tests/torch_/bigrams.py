"""A language model of pairs of words, and text for it."""

import torch
from torch import nn

WORDS, LENGTH = 7, 6


class Bigram(nn.Module):
    """Logits of the next token from this one, with what makes a mode visible."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Embedding(WORDS, WORDS)
        self.dropout = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, input_ids):
        return self.dropout(self.table(input_ids))


def text(n, seed, low=0, high=WORDS):
    return torch.randint(low, high, (n, LENGTH), generator=torch.Generator().manual_seed(seed))
