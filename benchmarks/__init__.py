"""How fast daskprs is, beside its peers and beside forty hand-written lines."""
