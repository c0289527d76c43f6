"""The tests of daskprs."""
