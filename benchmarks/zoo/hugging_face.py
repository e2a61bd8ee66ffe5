"""Architectures of the transformers library, with random weights and a vocabulary of 3000 tokens."""

from __future__ import annotations

import transformers
from torch import Tensor, nn

from benchmarks.zoo.encoders import randomize_layer_norms

VOCABULARY = 3000


class LastHiddenState(nn.Module):
    """A transformer that returns the output of its last layer."""

    def __init__(self, model: nn.Module, **options: bool) -> None:
        super().__init__()
        randomize_layer_norms(model)
        self.model = model
        self.options = options

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        masked = {} if mask is None else {"attention_mask": mask}
        return self.model(x, **masked, **self.options).last_hidden_state


def bert(layers: int, attention: str = "sdpa") -> nn.Module:
    """Return BERT (Devlin et al., 2019) with the width of the base model."""
    config = transformers.BertConfig(vocab_size=VOCABULARY, num_hidden_layers=layers, attn_implementation=attention)
    return LastHiddenState(transformers.BertModel(config))


def gpt2(layers: int) -> nn.Module:
    """Return GPT-2 (Radford et al., 2019) with the width of the small model."""
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_layer=layers, attn_implementation="sdpa")
    return LastHiddenState(transformers.GPT2Model(config), use_cache=False)


def vit(layers: int) -> nn.Module:
    """Return a vision transformer (Dosovitskiy et al., 2021) with the width of the base model, on 16x16 patches."""
    config = transformers.ViTConfig(num_hidden_layers=layers, attn_implementation="sdpa")
    return LastHiddenState(transformers.ViTModel(config, add_pooling_layer=False))


def llama(layers: int) -> nn.Module:
    """Return Llama (Touvron et al., 2023) with a width of 1024, and with four query heads for each key head and value head."""
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=1024,
        intermediate_size=2816,
        num_attention_heads=16,
        num_key_value_heads=4,
        num_hidden_layers=layers,
        attn_implementation="sdpa",
    )
    return LastHiddenState(transformers.LlamaModel(config), use_cache=False)
