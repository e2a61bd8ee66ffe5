"""Inputs that are traces of traffic at a signal, one value a second."""

from __future__ import annotations

import numpy as np

from benchmarks.wild.archives import Package
from benchmarks.wild.materials import Materials
from benchmarks.wild.recipes import Arrays, recipe
from benchmarks.wild.sound import Array

SEED = 0
CYCLE, GREEN, YELLOW, CLEARANCE = 80, 34, 4, 2
ARRIVALS = 0.12
"""The mean number of vehicles that reach a detector in a second."""
DETECTORS, PHASES = 4, 2


def rising(trace: Array) -> Array:
    """Return 1 where the trace rises from 0 to 1."""
    return np.maximum(np.diff(trace, prepend=0), 0)


def traces(length: int) -> Array:
    """Return the 15 traces of each pair of a detector and a phase of a simulated crossing.

    The first half of the detectors lies at the stop line, where vehicles wait for green. The other detectors see each vehicle
    for a second.
    """
    random = np.random.default_rng(SEED)
    seconds = np.arange(length)
    since = np.stack([(seconds - phase * CYCLE // PHASES) % CYCLE for phase in range(PHASES)])
    green = (since < GREEN).astype(float)
    yellow = ((since >= GREEN) & (since < GREEN + YELLOW)).astype(float)
    clearance = ((since >= GREEN + YELLOW) & (since < GREEN + YELLOW + CLEARANCE)).astype(float)
    seen = (random.random((DETECTORS, length)) < ARRIVALS).astype(float)
    for detector in range(DETECTORS // 2):
        phase = detector % PHASES
        for second in range(1, length):
            if not green[phase, second - 1]:
                seen[detector, second] = max(seen[detector, second], seen[detector, second - 1])
    call = (1 - green) * seen[:PHASES]
    pairs = []
    for detector in seen:
        for phase in range(PHASES):
            other = 1 - phase
            own = [detector, rising(detector) / 2, green[phase], yellow[phase], clearance[phase], call[phase]]
            others = [green[other] / 2, call[other], 0 * detector]
            edges = [rising(detector), rising(1 - detector), rising(call[phase]), rising(1 - call[phase])]
            pairs.append([*own, *others, *edges, 0 * detector, 0 * detector])
    return np.array(pairs, np.float32)


@recipe
def detectors(_: Materials, *, length: int) -> Arrays:
    """Simulated traces of four detectors and two phases of a traffic signal."""
    return {"x": traces(length)}


@recipe
def detector_scores(materials: Materials, package: Package, pairs: str, *, length: int) -> Arrays:
    """What another model of the package says of simulated traces of four detectors and two phases of a traffic signal."""
    said = materials.outputs(package, pairs, {"x": traces(length)})
    return {
        "logit": said["s"].reshape(DETECTORS, PHASES),
        "Z": said["z"].reshape(DETECTORS, PHASES, -1),
        "act": np.ones(DETECTORS, np.float32),
    }
