"""Session settings in a model's metadata: `ort_config`, which ONNX Runtime reads, and settings that `ort_config` cannot hold.

If the environment variable ORT_LOAD_CONFIG_FROM_MODEL is 1, ONNX Runtime uses the options under `ort_config`, and default
values for all other options. ONNX Runtime then ignores the options that a program gives. `ort_config` can hold the numbers of
intra-op and inter-op threads, the execution mode, the optimization level, and a flag for profiling. `ort_config` cannot hold
configuration entries or provider options, so these entries and options are stored under superopt's own keys, which a program
may read.
"""

from __future__ import annotations

import json

from superopt.errors import InvalidModelError
from superopt.model.load import Model
from superopt.runtime.cache import Json, json_object
from superopt.runtime.settings import THREADS, Settings

CONFIG, OPTIONS = "ort_config", "session_options"
ENTRIES, PROVIDER_OPTIONS = "superopt.session_entries", "superopt.provider_options"


def config_of(model: Model) -> dict[str, Json]:
    """Return the session settings in the model's metadata entry `ort_config`.

    The result always has an entry `session_options`, which may be empty.

    Raises:
        InvalidModelError: the metadata does not have the form that ONNX Runtime reads.
    """
    try:
        config: Json = json.loads(model.metadata_props.get(CONFIG, "{}"))
    except (ValueError, RecursionError) as error:
        raise InvalidModelError(f"the model's own metadata {CONFIG!r} is not JSON ({error})") from error
    if not isinstance(config, dict) or not isinstance(config.setdefault(OPTIONS, {}), dict):
        raise InvalidModelError(f"the model's own metadata {CONFIG!r} is not a JSON object with the key {OPTIONS!r}")
    return config


def with_settings(model: Model, told: Settings, threads: int) -> Model:
    """Return a copy of the model that stores the given settings in its metadata. If `told` contains no settings, the model
    itself is returned.

    Other entries under `ort_config` do not change. If options are added to `ort_config`, `threads` is added too. When ONNX
    Runtime uses `ort_config`, it ignores the number of threads that a program gives.

    Raises:
        InvalidModelError: the model's `ort_config` does not have the form that ONNX Runtime reads.
    """
    if not told:
        return model
    config = config_of(model)
    settled = model.clone()
    if told.options:
        config[OPTIONS] = {**json_object(config[OPTIONS]), THREADS: threads, **told.options}
        settled.metadata_props[CONFIG] = json.dumps(config, ensure_ascii=False)
    for key, values in ((ENTRIES, told.entries), (PROVIDER_OPTIONS, told.provider_options)):
        settled.metadata_props.pop(key, None)
        if values:
            settled.metadata_props[key] = json.dumps(dict(values), ensure_ascii=False)
    return settled
