"""FLOW 3, an optimization checked: read -> replay every step -> splice -> same model -> run both.

Neither the search nor the certificate is trusted: the original is lifted anew, every step is shown to be right anew, and what
the steps make of the original must be the optimized model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from superopt.certificate import Place, Rewrite, read, titles
from superopt.errors import CertificateError, CheckFailedError, ShapeError
from superopt.model.bodies import Scope
from superopt.model.check import Check
from superopt.model.content import content_digest, require_same
from superopt.model.dimensions import representative
from superopt.model.embedded import with_settings_of
from superopt.model.everywhere import check_everywhere
from superopt.model.inlined import inlined
from superopt.model.islands import Chart, Island
from superopt.model.known import with_known_stored
from superopt.model.load import Loaded, Model, load
from superopt.model.placed import temporary
from superopt.model.raised import raised
from superopt.model.save import loadable
from superopt.model.session import Device
from superopt.model.splice import Replacement, splice
from superopt.replay import Means, Replay, Shown
from superopt.report.progress import Listener, Progress, silent
from superopt.report.verification import Kind, Verification
from superopt.rewrite.apply import State
from superopt.rewrite.canonical import Canonical, canonical
from superopt.store import load_rules


def verify(
    original: str | os.PathLike[str],
    optimized: str | os.PathLike[str],
    certificate: str,
    *,
    provider: str = "cpu",
    threads: int = 1,
    seed: int = 0,
    progress: Listener = silent,
) -> Verification:
    """What shows that the optimized model computes what the original does; `certificate` is the text of one.

    Raises:
        CertificateError: it is of other models, a step is not shown to be right, or the steps make another model.
        CheckFailedError: the models differ on inputs that are drawn.
        ModelNotFoundError, InvalidModelError, OpsetError, ProviderError, RuntimeMissingError, StoreError: as
            `superopt.optimize`.
    """
    device = Device(provider, threads)
    given = read(certificate)
    progress(Progress("load"))
    before, after = load(original), load(optimized)
    _require_identity(before, given.original, "original")
    _require_identity(after, given.optimized, "optimized")
    replay = Replay(load_rules(), given.rules, seed)
    shown: list[Shown] = []
    model = before.model
    if given.passes and not given.rewritten:
        raise CertificateError("the certificate has steps, but says that nothing was rewritten")
    if given.rewritten:
        plain = inlined(model)
        model = with_known_stored(plain if given.opset is None else raised(plain, given.opset))
    for number, taken in enumerate(given.passes, 1):
        progress(Progress(f"replay, pass {number}", 0, len(taken)))
        model = _spliced(model, taken, replay, shown)
    rounded = require_same(with_settings_of(model, after.model), after.model)
    progress(Progress("check"))
    checked = _checked(before, after, given.sizes, device, seed) if given.rewritten else None
    return Verification(
        original=before.label,
        optimized=after.label,
        kinds=_kinds(shown),
        segments=sum(len(rewrite.places) for taken in given.passes for rewrite in taken),
        rounded=rounded,
        errors=None if checked is None else (checked.original_error, checked.candidate_error),
        reference="" if checked is None else checked.reference,
        inputs=() if checked is None else checked.inputs,
    )


def _kinds(shown: Sequence[Shown]) -> list[Kind]:
    """What was shown by each means, the strongest first."""
    found: list[Kind] = []
    for means in Means:
        same = [one for one in shown if one.means is means]
        if same:
            rules = tuple(dict.fromkeys(one.rule for one in same))
            error = max((one.log2_error for one in same if one.log2_error is not None), default=None)
            found.append(Kind(means.value, len(same), sum(one.roots for one in same), rules, error))
    return found


def _require_identity(loaded: Loaded, digest: str, which: str) -> None:
    if content_digest(loaded.model) != digest:
        raise CertificateError(f"{loaded.label} is not the {which} model of the certificate")


def _spliced(model: Model, taken: Sequence[Rewrite], replay: Replay, shown: list[Shown]) -> Model:
    """The model after one pass; how its steps were shown to be right is added to `shown`."""
    chart = Chart(model)
    found = {(island.scope, title): island for island in chart.islands() for title in titles(island)}
    replacements: list[Replacement] = []
    for rewrite in taken:
        results: dict[State, State] = {}
        for place in rewrite.places:
            island = _island(chart, found, place)
            form = canonical(tuple(island.outputs.values()))
            if form.outputs not in results:
                results[form.outputs], means = replay.followed(form.outputs, rewrite.steps, island.sizings)
                shown += means
            replacements.append(_replacement(island, form, results[form.outputs]))
    try:
        return splice(model, replacements)
    except (CheckFailedError, ShapeError) as error:
        raise CertificateError(f"what the steps lead to cannot be put into the model ({error})") from error


def _island(chart: Chart, found: Mapping[tuple[Scope, str], Island], place: Place) -> Island:
    """The nodes of a place as an island of their own: they are nodes of one island of the model."""
    whole = next((found[place.scope, title] for title in place.nodes if (place.scope, title) in found), None)
    wanted = set(place.nodes)
    named = [] if whole is None else [n for n, t in zip(whole.nodes, titles(whole), strict=True) if t in wanted]
    if not named or len(named) != len(wanted):
        raise CertificateError(f"no island of the model has the nodes that compute {', '.join(sorted(wanted)[:3])}")
    return chart.island(named)


def _replacement(island: Island, form: Canonical, result: State) -> Replacement:
    terms = form.restored(result)
    outputs = dict(zip(island.outputs, terms, strict=True))
    return Replacement(outputs, island.dtype, island.conditions, island.sizings, island.scope)


def _checked(before: Loaded, after: Loaded, sizes: Sequence[Mapping[str, int]], device: Device, seed: int) -> Check:
    """What running both models on inputs that are drawn gives."""
    with temporary() as scratch:
        one, other = (loadable(loaded.model, scratch, loaded.path) for loaded in (before, after))
        return check_everywhere(one, other, device, representative(before.model, sizes), seed=seed)
