"""The provenance in the metadata of a rewritten model: its content, the models that get it, and its acceptance by `verify`."""

from __future__ import annotations

import importlib
from pathlib import Path

import onnx
import pytest

import superopt
from superopt.errors import CertificateError
from superopt.flows.report_fields import version_of
from superopt.flows.verify import verify
from superopt.model.load import as_model
from superopt.model.provenance import KEYS, Provenance, with_provenance
from superopt.model.save import save
from superopt.verification.contents import content_digest
from tests.test_optimize import FACTOR, branches, compare_as, measured, use

FLOW = importlib.import_module("superopt.flows.optimize")
PREPARE = importlib.import_module("superopt.flows.prepare")


def entries(path: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


def test_provenance_replaces_an_earlier_one_and_leaves_other_metadata() -> None:
    given = as_model(branches())
    given.metadata_props.update({"author": "somebody", "superopt.rules": "3"})
    made = with_provenance(given, Provenance("1.2", "abc", "relaxed", 2, 9))
    assert dict(made.metadata_props) == {
        "author": "somebody",
        "superopt.version": "1.2",
        "superopt.original": "abc",
        "superopt.mode": "relaxed",
        "superopt.rules": "2",
        "superopt.rewrites": "9",
    }
    assert dict(given.metadata_props) == {"author": "somebody", "superopt.rules": "3"}
    assert with_provenance(made, Provenance("1.2", "abc", "relaxed", 2, 9)) is made
    assert dict(with_provenance(made, None).metadata_props) == {"author": "somebody"}


def test_a_model_that_is_not_rewritten_gets_no_provenance(tmp_path: Path) -> None:
    optimized = superopt.optimize(branches(), moves=(), budget=0, cache=tmp_path / "cache.sqlite")
    assert not optimized.report.accepted
    assert not optimized.model.metadata_props


@pytest.mark.slow
def test_a_rewritten_model_says_what_it_was_made_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, FACTOR)
    monkeypatch.setattr(FLOW, "default_path", lambda: tmp_path / "times.sqlite")
    monkeypatch.setattr(FLOW, "relower", lambda *_: ())
    compare_as(monkeypatch, lambda _: measured(2.0))
    monkeypatch.setattr("superopt.flows.verify.load_rules", PREPARE.load_rules)
    source, target, plain, again = (tmp_path / f"{name}.onnx" for name in ("in", "out", "plain", "again"))
    onnx.save(branches(), source)
    optimized = superopt.optimize(source, budget=60.0)
    optimized.save(target)
    assert optimized.report.accepted
    assert entries(target) == {
        "superopt.version": version_of("superopt"),
        "superopt.original": content_digest(as_model(branches())),
        "superopt.mode": "relaxed",
        "superopt.rules": "1",
        "superopt.rewrites": "7",
    }
    assert verify(source, target, optimized.certificate).kinds

    superopt.optimize(source, budget=60.0).save(again)
    assert target.read_bytes() == again.read_bytes()

    without = superopt.optimize(source, budget=60.0, metadata=False)
    without.save(plain)
    assert not entries(plain)
    assert verify(source, plain, without.certificate).kinds
    with pytest.raises(CertificateError, match="is not the optimized model"):
        verify(source, target, without.certificate)

    settled = superopt.optimize(target, budget=60.0)
    assert not settled.report.accepted
    settled.save(again)
    assert target.read_bytes() == again.read_bytes()


def test_superopt_writes_no_provenance_of_a_model_that_it_only_saves(tmp_path: Path) -> None:
    save(as_model(branches()), tmp_path / "out.onnx")
    assert not {*KEYS} & {*entries(tmp_path / "out.onnx")}
