"""Problem instances: schemas, files, generators and importers (imports no other package of flowlex).

``__init__.pyi`` lists the public names. Names, kinds, formats and generators are imported on first use (see
`flowlex.instances.extensions`), because creating their classes takes most of a second.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
