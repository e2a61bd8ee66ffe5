"""Provers: exact sampling, the index prover (definitions to axioms) and the axiomatic prover (axioms to rules)."""
