"""Features of sounds, computed as librosa computes them."""

from __future__ import annotations

import io
import wave
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Window: TypeAlias = Literal["hann", "hamming"]


def decoded(data: bytes, rate: int) -> Array:
    """Return the samples of a mono WAV file at the sample rate, as float32 between -1 and 1."""
    with wave.open(io.BytesIO(data)) as file:
        raw, width, own = file.readframes(file.getnframes()), file.getsampwidth(), file.getframerate()
    samples = (np.frombuffer(raw, np.uint8) - 128.0) / 128 if width == 1 else np.frombuffer(raw, "<i2") / 32768.0
    spectrum = np.fft.rfft(samples)
    count = round(len(samples) * rate / own)
    kept = min(len(spectrum), count // 2 + 1)
    resampled = np.fft.irfft(spectrum[:kept], count) * (count / len(samples))
    return np.asarray(resampled, np.float32).clip(-1, 1)


def spectrogram(samples: Array, size: int, hop: int, window: Window = "hann", *, centred: bool = True, width: int = 0) -> Array:
    """Return the power of each frequency in each frame.

    Args:
        samples: The sound.
        size: The number of points of a Fourier transform.
        hop: The number of samples from the start of a frame to the start of the next frame.
        window: The window function.
        centred: Whether the first frame is centred at the first sample.
        width: The length of the window, if it is smaller than `size`.

    Returns:
        An array of shape [frames, size // 2 + 1].
    """
    width = width or size
    offset, amplitude = {"hann": (0.5, 0.5), "hamming": (0.54, 0.46)}[window]
    shape = offset - amplitude * np.cos(2 * np.pi * np.arange(width) / width)
    left = (size - width) // 2
    shape = np.pad(shape, (left, size - width - left))
    padded = np.pad(samples, size // 2) if centred else samples
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop]
    return np.asarray(np.abs(np.fft.rfft(frames * shape)) ** 2)


def mel_filters(rate: int, size: int, bands: int) -> Array:
    """Return the triangular filters of Slaney's mel scale, as an array of shape [size // 2 + 1, bands]."""

    def mel(hertz: float) -> float:
        return hertz * 3 / 200 if hertz < 1000 else 15 + 27 * np.log(hertz / 1000) / np.log(6.4)

    points = np.linspace(0, mel(rate / 2), bands + 2)
    edges = np.where(points < 15, points * 200 / 3, 1000 * np.exp((points - 15) * np.log(6.4) / 27))
    frequencies = np.fft.rfftfreq(size, 1 / rate)[:, None]
    rising = (frequencies - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - frequencies) / np.diff(edges)[1:]
    return np.asarray(np.maximum(0, np.minimum(rising, falling)) * 2 / (edges[2:] - edges[:-2]))


def decibels(power: Array) -> Array:
    """Return the power in decibels relative to the largest power, with a minimum of -80."""
    result = 10 * np.log10(np.maximum(power, 1e-10) / max(power.max(), 1e-10))
    return np.asarray(np.maximum(result, -80))
