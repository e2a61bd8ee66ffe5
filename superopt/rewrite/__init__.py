"""Rewriting graphs of terms with proved rules: match rules, apply them, and find the cheapest result."""
