"""Reports of runs as typed values, shown as tables on a terminal or as JSON."""
