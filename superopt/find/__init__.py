"""Rule discovery: enumerate terms, group them by value, generalise and join equalities, and prune. It does not prove rules."""
