"""Rewriting graphs of terms with proved rules: where rules match, what applying them gives, and which result is cheapest."""
