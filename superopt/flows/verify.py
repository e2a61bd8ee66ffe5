"""Verify an optimized model independently, by the certificate of its optimization.

The certificate is not trusted. The verification does not use the search's code for translating nodes, folding constants or
inferring shapes (see `superopt.verification`). Nodes and weights are compared, each rewrite step is checked, and segments
(rewritten parts) and models are run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from superopt.errors import CertificateError, InvalidModelError, ModelNotFoundError
from superopt.protobuf.kernels import without_kernels
from superopt.protobuf.sparse import without_sparse
from superopt.protobuf.validate import require_well_formed
from superopt.report.progress import Listener, Progress, ignore_progress
from superopt.report.verification import EvidenceKind, Verification
from superopt.rules.rule import Rule
from superopt.rules.store import load_rules
from superopt.rules.user_rules import load_user_rules
from superopt.verification.certificates import Certificate, parse_certificate
from superopt.verification.derivation import SegmentCounts, check_nodes, check_segments, check_weights
from superopt.verification.inputs import Feeds
from superopt.verification.models import ModelSource
from superopt.verification.runs import compare_runs
from superopt.verification.steps import CheckedStep, StepChecker, StepEvidence
from superopt.verification.stored import check_stored


def verify(
    original: str | os.PathLike[str],
    optimized: str | os.PathLike[str],
    certificate: str,
    *,
    provider: str = "cpu",
    threads: int = 1,
    seed: int = 0,
    examples: Sequence[Feeds] = (),
    user_rules: Sequence[str | os.PathLike[str]] = (),
    progress: Listener = ignore_progress,
) -> Verification:
    """Check that the optimized model is equivalent to the original, and return a report of the checks.

    Args:
        original: The path of the original model.
        optimized: The path of the optimized model.
        certificate: The text of the certificate.
        provider: "cpu", "cuda" or "tensorrt".
        threads: The CPU threads of a session.
        seed: The seed of the random inputs.
        examples: Additional values of inputs on which both models are run, as mappings from names to arrays.
        user_rules: Files and folders with rules of the user, which the optimization used.
        progress: Receives progress reports.

    Raises:
        CertificateError: The certificate belongs to other models, a step could not be verified, or the steps do not lead to the
            optimized model.
        CheckFailedError: The models differ on random inputs.
        ModelNotFoundError, InvalidModelError, ProviderError, RuntimeMissingError, StoreError: See `superopt.optimize`.
    """
    given = parse_certificate(certificate)
    rules = [*load_rules(), *load_user_rules(user_rules)] if given.passes else []
    return verify_certificate(
        original, optimized, given, rules, provider=provider, threads=threads, seed=seed, examples=examples, progress=progress
    )


def verify_certificate(
    original: str | os.PathLike[str],
    optimized: str | os.PathLike[str],
    given: Certificate,
    rules: Sequence[Rule],
    *,
    provider: str = "cpu",
    threads: int = 1,
    seed: int = 0,
    examples: Sequence[Feeds] = (),
    progress: Listener = ignore_progress,
) -> Verification:
    """Check that the optimized model is equivalent to the original, and return a report of the checks.

    `given` is the parsed certificate, and `rules` are the stored rules. See `verify` for the other arguments.

    Raises:
        CertificateError, CheckFailedError, ModelNotFoundError, InvalidModelError, RuntimeMissingError: See `verify`.
    """
    progress(Progress("load"))
    before, after = _source(original), _source(optimized)
    _require_identity(before, given.original, "original")
    _require_identity(after, given.optimized, "optimized")
    if given.passes and not given.rewritten:
        raise CertificateError("the certificate has steps, but says that nothing was rewritten")
    if not given.rewritten:
        if given.original != given.optimized and before.digest(metadata=False) != after.digest(metadata=False):
            raise CertificateError("the certificate says that nothing was rewritten, but the models differ")
        return Verification(str(original), str(optimized), [])
    plain = without_kernels(after.proto)
    called = plain is not after.proto
    after = ModelSource(after.path, plain)
    progress(Progress("nodes and weights"))
    special = before.specialized(given.specialization)
    compared_nodes = check_nodes(special, after, given)
    weights = check_weights(special, after, given)
    steps = StepChecker({rule.name: rule for rule in rules}, given.rules, seed)
    shown: list[CheckedStep] = []
    for number, one in enumerate(given.passes, 1):
        for done, rewrite in enumerate(one.rewrites):
            progress(Progress(f"steps, pass {number}", done, len(one.rewrites)))
            shown += steps.follow(rewrite)
    steps.require_flags(shown, given)
    progress(Progress("run"))
    linked = SegmentCounts()

    def inside(feeds: Feeds) -> None:
        check_stored(special, after, given, feeds)
        check_segments(special, after, given, feeds, linked)

    compared = compare_runs(
        before,
        after,
        given=given.sizes,
        special=given.mode != "fast",
        masks=bool(given.ordinary),
        identical=given.mode == "precise",
        provider=provider,
        threads=threads,
        seed=seed,
        inside=inside,
        fixed=given.specialization,
        examples=examples,
    )
    fixed = [f"{name} is {text}, and no other value." for name, text in given.specialization.described().items()]
    return Verification(
        original=str(original),
        optimized=str(optimized),
        kinds=_kinds(shown),
        segments=sum(len(rewrite.places) for one in given.passes for rewrite in one.rewrites),
        mode=given.mode,
        assumptions=(*fixed, *given.ordinary, *given.assumptions),
        weights=(weights.kept, weights.computed, weights.small),
        linked=(linked.before, linked.after, linked.left_out),
        run=(compared.sizes, compared.inputs, compared.values),
        compared_nodes=compared_nodes,
        changed=called or bool(given.stored or given.specialization or weights.computed or weights.small),
    )


def _source(path: str | os.PathLike[str]) -> ModelSource:
    file = Path(path)
    if not file.exists():
        raise ModelNotFoundError(f"{file}: no such file")
    if not file.is_file():
        raise InvalidModelError(f"{file}: not a file")
    source = ModelSource.read(file)
    require_well_formed(source.proto, str(file))
    return ModelSource(file, without_sparse(source.proto))


def _require_identity(source: ModelSource, digest: str, which: str) -> None:
    """Check that the content digest of the model is `digest`.

    `which` is the word for the model in the error message: "original" or "optimized".

    Raises:
        CertificateError: The model has a different digest.
    """
    if source.digest() != digest:
        raise CertificateError(f"{source.path} is not the {which} model of the certificate")


def _kinds(shown: Sequence[CheckedStep]) -> list[EvidenceKind]:
    """Group the verified steps by the kind of evidence: first the proved steps, then the tested steps."""
    found: list[EvidenceKind] = []
    for means in StepEvidence:
        same = [one for one in shown if one.means is means]
        if same:
            rules = tuple(dict.fromkeys(one.rule for one in same))
            found.append(EvidenceKind(means.value, len(same), sum(one.roots for one in same), rules))
    return found
