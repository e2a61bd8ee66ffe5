"""The models that superopt is measured on: `catalogue` lists them, `scripts/zoo` writes them, the other modules define them."""
