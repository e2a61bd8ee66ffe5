"""Rule discovery: terms enumerated, grouped by value, generalised, joined and pruned. What is found is proved elsewhere."""
