"""What is to be scheduled: schema, files, generators, importers (imports nothing else of flowlex).

The public names are listed once, in ``__init__.pyi``; each is imported when it is first used, and so are kinds, formats
and generators (see `flowlex.instances.extensions`): their classes take most of a second to make.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
