"""The first run of a model: whether it can be run at all on inputs that are drawn, and how long its nodes take."""

from __future__ import annotations

from collections.abc import Sequence

from superopt.errors import InvalidModelError
from superopt.model.check import index_bounds
from superopt.model.dimensions import Sizing
from superopt.model.load import Loaded
from superopt.model.measure import SHORT
from superopt.model.save import parsed
from superopt.model.session import Device, Loadable, Session, random_inputs


def first_run(original: Loadable, loaded: Loaded, device: Device, sizings: Sequence[Sizing]) -> tuple[str, bool]:
    """Why the model cannot be run on inputs that are drawn, where it cannot (then nothing could be checked); and whether its
    nodes are short.

    Raises:
        InvalidModelError: ONNX Runtime cannot load it, or run it at sizes that can be chosen; with the model's name.
    """
    bounds = index_bounds(parsed(original, external=False))
    try:
        session = Session(original, device)
    except InvalidModelError as error:
        raise InvalidModelError(f"{loaded.label}: {error}") from error
    seconds = 0.0
    for sizing in sizings:
        try:
            feeds = random_inputs(session.inputs, sizes=sizing.numbers, high=bounds)
        except InvalidModelError as error:
            return str(error), False
        try:
            run = session.ready(feeds)
            seconds += min(run.seconds(1) for _ in range(3))
        except InvalidModelError as error:
            if not sizing.numbers:
                return str(error), False
            why = f"it does not run at {sizing}, so other sizes are needed ({error})"
            raise InvalidModelError(f"{loaded.label}: {why}") from error
    return "", seconds < SHORT * len(sizings) * len(loaded.model.graph)
