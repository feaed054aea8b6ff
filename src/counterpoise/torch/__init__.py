"""Deep learning for an uncertain mix of contexts: losses for any training loop (extra ``torch``)."""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError("counterpoise.torch needs torch. Run: pip install 'counterpoise[torch]'") from error

from counterpoise.torch.baselines import ERMLoss, FixedWeights, GroupDROLoss, InverseFrequencyLoss
from counterpoise.torch.evaluation import context_risks, per_sample, zero_one
from counterpoise.torch.features import features
from counterpoise.torch.head import RobustHead
from counterpoise.torch.head_references import References, head_references
from counterpoise.torch.held_out import HeldOutWeights
from counterpoise.torch.losses import ContextLoss, RobustLoss
from counterpoise.torch.mix_files import read_mix
from counterpoise.torch.mixture import MixtureController
from counterpoise.torch.proxies import extrapolated_losses, proxy_losses, proxy_models
from counterpoise.torch.references import reference_risks
from counterpoise.torch.sampling import ContextBatchSampler
from counterpoise.torch.streams import MixtureStream
from counterpoise.torch.text import next_token_loss, sample_losses, source_losses
from counterpoise.torch.training import History, fit

__all__ = [
    "ContextBatchSampler",
    "ContextLoss",
    "ERMLoss",
    "FixedWeights",
    "GroupDROLoss",
    "HeldOutWeights",
    "History",
    "InverseFrequencyLoss",
    "MixtureController",
    "MixtureStream",
    "References",
    "RobustHead",
    "RobustLoss",
    "context_risks",
    "extrapolated_losses",
    "features",
    "fit",
    "head_references",
    "next_token_loss",
    "per_sample",
    "proxy_losses",
    "proxy_models",
    "read_mix",
    "reference_risks",
    "sample_losses",
    "source_losses",
    "zero_one",
]
