"""The provenance of a rewritten model in its metadata: the version of superopt, the original model, and the rewrites.

The metadata has no date, so that the same optimization always writes the same bytes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from superopt.model.load import Model

PREFIX = "superopt."


@dataclass(frozen=True)
class Provenance:
    """The origin of a rewritten model. Each attribute is stored under its name with the prefix `superopt.`.

    Attributes:
        version: The version of superopt.
        original: The content digest of the original model, as in the certificate.
        mode: The floating-point mode.
        rules: The number of different rules that were applied.
        rewrites: The number of times that rules were applied.
    """

    version: str
    original: str
    mode: str
    rules: int
    rewrites: int


KEYS = tuple(f"{PREFIX}{name}" for name in Provenance.__dataclass_fields__)
"""The keys of the metadata entries."""


def with_provenance(model: Model, provenance: Provenance | None) -> Model:
    """Return a copy of the model with this provenance in its metadata.

    If `provenance` is None, the copy has no provenance. An earlier provenance in the model's metadata is replaced or removed.
    If there is nothing to change, the model itself is returned.
    """
    entries = {} if provenance is None else {f"{PREFIX}{name}": str(value) for name, value in asdict(provenance).items()}
    if all(model.metadata_props.get(key) == entries.get(key) for key in KEYS):
        return model
    copy = model.clone()
    for key in KEYS:
        copy.metadata_props.pop(key, None)
    copy.metadata_props.update(entries)
    return copy
