"""Inputs that are sounds or features of sounds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.wild.archives import Package
from benchmarks.wild.materials import Materials
from benchmarks.wild.recipes import Arrays, recipe
from benchmarks.wild.sound import Array, decibels, mel_filters, spectrogram

RATE = 16_000
SEED = 0


def seconds(materials: Materials, sound: str, samples: int, rate: int = RATE) -> Array:
    """Return the first samples of a sound, which is repeated if it is too short."""
    return np.asarray(np.resize(materials.sound(sound, rate), samples))


def mel_decibels(samples: Array, size: int, hop: int, bands: int) -> Array:
    """Return the mel spectrum of each frame.

    A value of 1 stands for the maximum. A value of 0 stands for 40 decibels less.
    """
    power = spectrogram(samples, size, hop) @ mel_filters(RATE, size, bands)
    return np.asarray((decibels(power) + 40) / 40, np.float32)


@recipe
def sound(
    materials: Materials,
    name: str,
    *,
    to: str,
    samples: int,
    rate: int = RATE,
    parts: int = 1,
    factor: float = 1,
    channels: tuple[int, ...] = (),
    also: Mapping[str, float] | None = None,
) -> Arrays:
    """Speech or music that a package ships, cut into parts of the same length."""
    cut = seconds(materials, name, parts * samples, rate) * np.float32(factor)
    others = {key: np.asarray(value, np.float32) for key, value in (also or {}).items()}
    return {to: cut.reshape(parts, samples, *channels), **others}


@recipe
def frame(
    materials: Materials,
    package: Package,
    file: str,
    *,
    after: int,
    state: Mapping[str, tuple[str, tuple[int, ...]]],
    size: int = 512,
    context: int = 64,
    rate: bool = True,
) -> Arrays:
    """One frame of speech, with the state in which the model is after the frames before it.

    Args:
        materials: The materials.
        package: The package of the model.
        file: The file of the model in the package.
        after: The number of frames before the frame.
        state: For each input that is a state, the output with the next state, and the shape of the state.
        size: The number of samples of a frame.
        context: The number of samples before the frame that the model sees again.
        rate: Whether the model has an input for the sample rate.
    """
    speech = np.pad(seconds(materials, "speech", (after + 1) * size), (context, 0))
    feeds: dict[str, Array] = {key: np.zeros(shape, np.float32) for key, (_, shape) in state.items()}
    if rate:
        feeds["sr"] = np.asarray(RATE, np.int64)
    for start in range(0, after * size, size):
        feeds["input"] = speech[None, start : start + context + size]
        outputs = materials.outputs(package, file, feeds)
        feeds |= {key: outputs[following] for key, (following, _) in state.items()}
    return {**feeds, "input": speech[None, after * size :]}


@recipe
def frames(materials: Materials, *, count: int, size: int = 512, context: int = 64) -> Arrays:
    """All frames of speech, each with the end of the frame before it, and a state of zeros."""
    speech = np.pad(seconds(materials, "speech", count * size), (context, 0))
    rows = np.lib.stride_tricks.sliding_window_view(speech, context + size)[::size]
    zeros = np.zeros((1, 1, 128), np.float32)
    return {"input": np.ascontiguousarray(rows), "h": zeros, "c": zeros}


@recipe
def mel_spectrum(materials: Materials, name: str, *, to: str, samples: int, size: int, hop: int, bands: int) -> Arrays:
    """Speech or music that a package ships, as its mel spectrum in decibels."""
    return {to: mel_decibels(seconds(materials, name, samples), size, hop, bands)[None]}


@recipe
def spectrum(materials: Materials, name: str, *, to: str, samples: int, size: int, hop: int) -> Arrays:
    """Speech or music that a package ships, as the logarithm of its spectrum."""
    power = spectrogram(seconds(materials, name, samples), size, hop)
    return {to: np.log10(np.maximum(power, 1e-12))[None].astype(np.float32)}


@recipe
def rated_spectrum(materials: Materials, *, samples: int) -> Arrays:
    """Speech that a package ships, as the logarithm of its spectrum, and a random vector for the rater."""
    power = spectrogram(seconds(materials, "speech", samples), 512, 256, "hamming", centred=False)
    rater = np.random.default_rng(SEED).standard_normal((1, 64))
    logarithm = np.log(np.maximum(power, 1e-12)) / 20
    return {"degraded_audio": logarithm[None, None].astype(np.float32), "rater_embed": rater.astype(np.float32)}


@recipe
def echo(materials: Materials, *, samples: int) -> Arrays:
    """Music as the far end of a call, speech mixed with quiet music at the microphone, and speech after echo cancellation."""
    far, near = seconds(materials, "music", samples), seconds(materials, "speech", samples)
    stacked = [mel_decibels(each, 513, 256, 160) for each in (far, near + far / 4, near)]
    return {"input": np.stack(stacked)[None], "h0": np.zeros((4, 1, 64), np.float32)}


def voice_windows(materials: Materials, windows: int) -> Array:
    """Return mel spectra of 80 frames of speech. Each window starts 40 frames after the previous window."""
    samples = seconds(materials, "speech", 512 + 160 * (40 * windows + 39))
    power = spectrogram(samples, 512, 160, "hamming", centred=False, width=400) @ mel_filters(RATE, 512, 40)
    logarithm = np.log10(power + 1e-10).astype(np.float32)
    return np.stack([logarithm[40 * i : 40 * i + 80] for i in range(windows)])


@recipe
def voice(materials: Materials, *, windows: int) -> Arrays:
    """Mel spectra of overlapping parts of speech."""
    return {"mel_window": voice_windows(materials, windows)}


@recipe
def mixture(materials: Materials, package: Package, embedder: str, *, steps: int) -> Arrays:
    """Mel spectra of speech mixed with music, four frames a step, and what another model of the package says of the voice."""
    voices = materials.outputs(package, embedder, {"mel_window": voice_windows(materials, 8)})["embedding"]
    mean = (voices / np.linalg.norm(voices, axis=-1, keepdims=True)).mean(0, keepdims=True)
    samples = 1200 + 160 * (steps + 2)
    mixed = seconds(materials, "speech", samples) + seconds(materials, "music", samples) / 2
    power = spectrogram(mixed, 1200, 160, centred=False, width=640) @ mel_filters(RATE, 1200, 128)
    logarithm = np.log(power + 1e-6)
    zeros = np.zeros((3, 1, 512), np.float32)
    return {
        "stacked_logmel": np.concatenate([logarithm[i : i + steps] for i in range(4)], -1)[None].astype(np.float32),
        "dvec": (mean / np.linalg.norm(mean)).astype(np.float32),
        "h0": zeros,
        "c0": zeros,
    }


def wake_spectra(materials: Materials, package: Package, samples: int) -> Array:
    """Return the mel spectrum of speech that the first model of openWakeWord computes."""
    speech = seconds(materials, "speech", samples)[None] * np.float32(32767)
    (spectra,) = materials.outputs(package, "package/models/melspectrogram.onnx", {"input": speech}).values()
    return np.asarray(spectra.squeeze() / 10 + 2, np.float32)


def wake_windows(materials: Materials, package: Package, windows: int) -> Array:
    """Return windows of 76 frames of the mel spectrum. Each window starts 8 frames after the previous window."""
    spectra = wake_spectra(materials, package, 160 * (8 * windows + 76))
    return np.stack([spectra[8 * i : 8 * i + 76] for i in range(windows)])[..., None]


@recipe
def wake_windows_of_speech(materials: Materials, package: Package, *, windows: int) -> Arrays:
    """Overlapping parts of the mel spectrum of speech, which the first model of openWakeWord computes."""
    return {"input_1": wake_windows(materials, package, windows)}


@recipe
def wake_embeddings(materials: Materials, package: Package, *, windows: int, to: str) -> Arrays:
    """Embeddings of speech, which the first two models of openWakeWord compute."""
    feeds = {"input_1": wake_windows(materials, package, windows)}
    (embeddings,) = materials.outputs(package, "package/models/embedding_model.onnx", feeds).values()
    return {to: embeddings.reshape(1, windows, 96)}
