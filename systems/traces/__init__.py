"""Importers of public traces (Google, openb, Gavel, coflows) and of CSV tables of one's own."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
