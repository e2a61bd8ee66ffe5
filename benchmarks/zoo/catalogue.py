"""All models of the zoo, by kind.

A name contains the architecture. If the sequence length or the batch size matters, it follows after `s` or `b`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from benchmarks.zoo.recipes import Exported, Quantized, Recipe, Standard, Synthetic, Trees, normal, ones, tokens


def images(builder: str, batch: int, side: int, **options: tuple[int, ...]) -> Exported:
    """Return a recipe for a network on square images with three channels."""
    return Exported(builder, (normal(batch, 3, side, side),), options, calibrated=True)


def legacy(recipe: Exported) -> Exported:
    """Return the recipe with PyTorch's legacy exporter, which traces the module."""
    return replace(recipe, exporter="legacy", opset=17)


CONVOLUTIONAL: Mapping[str, Exported] = {
    "resnet18": images("convolutional.resnet18", 1, 224),
    "resnet18_64px": images("convolutional.resnet18", 1, 64),
    "resnet18_legacy": legacy(images("convolutional.resnet18", 1, 224)),
    "resnet50": images("convolutional.resnet50", 1, 224),
    "resnet50_b8_64px": images("convolutional.resnet50", 8, 64),
    "resnext50_32x4d": images("convolutional.resnext50_32x4d", 1, 224),
    "squeezenet1_1": images("convolutional.squeezenet1_1", 1, 224),
    "mobilenet_v2": images("convolutional.mobilenet_v2", 1, 224),
    "densenet121": images("convolutional.densenet", 1, 224, layers=(6, 12, 24, 16)),
    "densenet_small": images("convolutional.densenet", 1, 96, layers=(4, 6)),
    "csrnet": images("convolutional.CSRNet", 1, 256),
    "csrnet_b4_64": images("convolutional.CSRNet", 4, 64),
    "unet_small": images("convolutional.UNet", 1, 128),
    "convnext_small": Exported("convolutional.ConvNeXt", (normal(1, 3, 128, 128),)),
}

BRANCHED: Mapping[str, Exported] = {
    "inception_v3": images("branched.inception_v3", 1, 299),
    "inception_v3_legacy": legacy(images("branched.inception_v3", 1, 299)),
    "repvgg_a0_train": images("branched.repvgg_a0", 1, 224),
    "repvgg_a0_train_legacy": legacy(images("branched.repvgg_a0", 1, 224)),
    "mobileone_s0_train": images("branched.mobileone_s0", 1, 224),
    "nasnet_a_stack": images("branched.NASNetStack", 1, 64),
}

RECURRENT: Mapping[str, Exported] = {
    "lstm80_h128": Exported("recurrent.UnrolledLSTM", (normal(1, 80, 128),), {"hidden": 128}),
    "lstm80_h128_legacy": legacy(Exported("recurrent.UnrolledLSTM", (normal(1, 80, 128),), {"hidden": 128})),
    "lstm80_h512": Exported("recurrent.UnrolledLSTM", (normal(1, 80, 512),), {"hidden": 512}),
    "lstm20_h128_split": Exported("recurrent.SplitGateLSTM", (normal(1, 20, 128),), {"hidden": 128}),
    "nasrnn_t5_h512": Exported("recurrent.NASRNN", (normal(1, 512),) * 5, {"hidden": 512, "weights": 5}),
    "nasrnn_t10_h512_shared": Exported("recurrent.NASRNN", (normal(1, 512),) * 10, {"hidden": 512, "weights": 1}),
}

RECOMMENDATION: Mapping[str, Exported] = {
    "dlrm_b1": Exported("recommendation.DLRM", (normal(1, 13), tokens(1, 26))),
    "dlrm_b128": Exported("recommendation.DLRM", (normal(128, 13), tokens(128, 26))),
    "mmoe_b1": Exported("recommendation.MultiGateMixture", (normal(1, 128),)),
    "mmoe_b64": Exported("recommendation.MultiGateMixture", (normal(64, 128),)),
    "moe8_s1": Exported("recommendation.SoftMixture", (normal(1, 1, 512),)),
    "moe8_s64": Exported("recommendation.SoftMixture", (normal(1, 64, 512),)),
    "moe16_small_s1": Exported(
        "recommendation.SoftMixture", (normal(1, 1, 64),), {"features": 64, "hidden": 128, "experts": 16}
    ),
}

SMALL_ENCODER = {"width": 256, "heads": 4, "hidden": 1024}
ENCODERS: Mapping[str, Exported] = {
    "enc1_s64": Exported("encoders.encoder", (normal(1, 64, 768),), {"layers": 1}),
    "enc1_s128_legacy": legacy(Exported("encoders.encoder", (normal(1, 128, 768),), {"layers": 1})),
    "enc4_d256_s32": Exported("encoders.encoder", (normal(1, 32, 256),), {"layers": 4, **SMALL_ENCODER}),
    "enc2_pre_s64": Exported("encoders.encoder", (normal(1, 64, 768),), {"layers": 2, "pre_norm": True}),
    "bert_lora_2l_s64": Exported("encoders.encoder", (normal(1, 64, 768),), {"layers": 2, "adapted": True}),
    "bert_lora_2l_s1": Exported("encoders.encoder", (normal(1, 1, 768),), {"layers": 2, "adapted": True}),
    "mixer_small": Exported("encoders.MLPMixer", (normal(1, 3, 224, 224),)),
}

SMALL_LLAMA = {"width": 256, "heads": 8, "groups": 2, "hidden": 688}
PRESENT = ("logits", "present_key_0", "present_value_0", "present_key_1", "present_value_1")


def decode_step(builder: str, *cache: int) -> Exported:
    """Return a recipe for one token after a cache. `cache` is the shape of the keys and of the values of each of two layers."""
    past = (normal(*cache, name=f"past_{kind}_{layer}") for layer in range(2) for kind in ("key", "value"))
    return Exported(builder, (tokens(1, 1, name="token"), *past), outputs=PRESENT)


DECODERS: Mapping[str, Exported] = {
    "llama_blk2_s64": Exported("decoders.llama", (normal(1, 64, 1024),), {"layers": 2, "length": 64}),
    "llama_blk2_s1": Exported("decoders.llama", (normal(1, 1, 1024),), {"layers": 2, "length": 1}),
    "llama_blk4_small_s32": Exported("decoders.llama", (normal(1, 32, 256),), {"layers": 4, "length": 32, **SMALL_LLAMA}),
    "llama_decode_step": decode_step("decoders.LlamaDecodeStep", 1, 4, 127, 64),
    "gpt2_decode_step": decode_step("decoders.GPT2DecodeStep", 1, 12, 127, 64),
}

HUGGING_FACE: Mapping[str, Exported] = {
    "bert_base_1l_s64": Exported("hugging_face.bert", (tokens(1, 64), ones(1, 64)), {"layers": 1}),
    "bert_base_1l_s64_legacy": legacy(
        Exported("hugging_face.bert", (tokens(1, 64), ones(1, 64)), {"layers": 1, "attention": "eager"})
    ),
    "bert_base_1l_s128_eager": Exported(
        "hugging_face.bert", (tokens(1, 128), ones(1, 128)), {"layers": 1, "attention": "eager"}
    ),
    "bert_base_12l_s128": Exported("hugging_face.bert", (tokens(1, 128), ones(1, 128)), {"layers": 12}),
    "gpt2_2l_s64": Exported("hugging_face.gpt2", (tokens(1, 64),), {"layers": 2}),
    "vit_b_4l": Exported("hugging_face.vit", (normal(1, 3, 224, 224),), {"layers": 4}),
    "llama_hf_2l_s64": Exported("hugging_face.llama", (tokens(1, 64),), {"layers": 2}),
}

OPEN: Mapping[str, Exported] = {
    "dyn_bert": Exported(
        "hugging_face.bert", (tokens("batch", "seq"), ones("batch", "seq")), {"layers": 2, "attention": "eager"}, opset=18
    ),
    "dyn_lora": Exported("encoders.encoder", (normal("batch", "seq", 768),), {"layers": 2, "adapted": True}, opset=18),
    "dyn_lora_legacy": legacy(
        Exported("encoders.encoder", (normal("batch", "seq", 768, name="x"),), {"layers": 2, "adapted": True}, outputs=("y",))
    ),
    "dyn_llama": Exported("hugging_face.llama", (tokens(1, "seq"),), {"layers": 2}, opset=18),
}

QUANTIZED: Mapping[str, Quantized] = {
    f"{name}_qdq": Quantized(name, CONVOLUTIONAL[name]) for name in ("resnet18", "mobilenet_v2")
}

TREES: Mapping[str, Trees] = {
    "rf100_d6_b1": Trees("random forest", trees=100, depth=6, batch=1),
    "rf100_d6_b128": Trees("random forest", trees=100, depth=6, batch=128),
    "rf20_d4_b1": Trees("random forest", trees=20, depth=4, batch=1),
    "rf20_d4_b1024": Trees("random forest", trees=20, depth=4, batch=1024),
    "gbr100_d4_b1": Trees("gradient boosting", trees=100, depth=4, batch=1),
    "gbr100_d4_b128": Trees("gradient boosting", trees=100, depth=4, batch=128),
}

STANDARD: Mapping[str, Standard] = {
    f"onnx_{light}": Standard(light)
    for light in ("shufflenet", "inception_v1", "inception_v2", "densenet121", "squeezenet", "resnet50")
}

SYNTHETIC: Mapping[str, Synthetic] = {
    "synthetic_3gb": Synthetic(width=4096, layers=45),
}

MODELS: Mapping[str, Recipe] = {
    **CONVOLUTIONAL,
    **BRANCHED,
    **RECURRENT,
    **RECOMMENDATION,
    **ENCODERS,
    **DECODERS,
    **HUGGING_FACE,
    **OPEN,
    **QUANTIZED,
    **TREES,
    **STANDARD,
    **SYNTHETIC,
}

UNFOLDED = frozenset(
    {
        *RECURRENT,
        *(name for name, recipe in BRANCHED.items() if recipe.builder in ("branched.repvgg_a0", "branched.mobileone_s0")),
        *(name for name, recipe in {**ENCODERS, **OPEN}.items() if recipe.options.get("adapted")),
        *(name for name, recipe in RECOMMENDATION.items() if recipe.builder.endswith("Mixture")),
    }
)
"""The models in training form (branches or adapters that a deployment merges), and the models with unrolled loops.

All other models are in deploy form.
"""


def batched(models: Mapping[str, Recipe], batch: int) -> Mapping[str, Exported]:
    """Return the models with batch size 1, changed to batch size `batch`. Each name gets the suffix `_b` and the batch size."""
    return {
        f"{name}_b{batch}": replace(
            recipe, inputs=tuple(replace(each, shape=(batch, *each.shape[1:])) for each in recipe.inputs)
        )
        for name, recipe in models.items()
        if isinstance(recipe, Exported) and all(each.shape[0] == 1 and not each.open_dimensions for each in recipe.inputs)
    }
