"""Settings of sessions that stand in a model's metadata: `ort_config`, which ONNX Runtime reads, and what that cannot hold.

With the environment variable ORT_LOAD_CONFIG_FROM_MODEL=1, ONNX Runtime makes sessions with the options that stand under
`ort_config`, and with its defaults otherwise: what a program says is left aside. It knows numbers of threads, the execution
mode, the level of optimization and whether to profile, and neither configuration entries nor options of a provider. These stand
under keys of our own, for programs that read them.
"""

from __future__ import annotations

import json
from typing import Any

from superopt.errors import InvalidModelError
from superopt.model.load import Model
from superopt.model.settings import THREADS, Settings

CONFIG, OPTIONS = "ort_config", "session_options"
ENTRIES, PROVIDER_OPTIONS = "superopt.session_entries", "superopt.provider_options"


def config_of(model: Model) -> dict[str, Any]:
    """What the model has under `ort_config`, whose `session_options` are there, if empty.

    Raises:
        InvalidModelError: it is not what ONNX Runtime reads.
    """
    try:
        config = json.loads(model.metadata_props.get(CONFIG, "{}"))
    except (ValueError, RecursionError) as error:
        raise InvalidModelError(f"the model's own metadata {CONFIG!r} is not JSON ({error})") from error
    if not isinstance(config, dict) or not isinstance(config.setdefault(OPTIONS, {}), dict):
        raise InvalidModelError(f"the model's own metadata {CONFIG!r} is not a JSON object with {OPTIONS!r}")
    return config


def with_settings(model: Model, told: Settings, threads: int) -> Model:
    """The model with the settings in its metadata, itself where there are none.

    What else stands under `ort_config` stays. Where there are options for it, the number of threads is among them, for a
    program has no say in it then.

    Raises:
        InvalidModelError: as `config_of`.
    """
    if not told:
        return model
    config = config_of(model)
    settled = model.clone()
    if told.options:
        config[OPTIONS] |= {THREADS: threads, **told.options}
        settled.metadata_props[CONFIG] = json.dumps(config, ensure_ascii=False)
    for key, values in ((ENTRIES, told.entries), (PROVIDER_OPTIONS, told.provider_options)):
        settled.metadata_props.pop(key, None)
        if values:
            settled.metadata_props[key] = json.dumps(dict(values), ensure_ascii=False)
    return settled


def with_settings_of(model: Model, other: Model) -> Model:
    """The model with what the other one has for settings of sessions."""
    settled = model.clone()
    for key in (CONFIG, ENTRIES, PROVIDER_OPTIONS):
        settled.metadata_props.pop(key, None)
        if key in other.metadata_props:
            settled.metadata_props[key] = other.metadata_props[key]
    return settled
