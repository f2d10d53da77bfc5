"""The duals of one family of constraints, by label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowlex.errors import FlowlexError
from flowlex.formulations.block_labels import Labels, block_labels
from flowlex.formulations.program_arrays import locked
from flowlex.instances.input_errors import did_you_mean

if TYPE_CHECKING:
    import pandas as pd


class _Block(Protocol):
    @property
    def count(self) -> int: ...
    @property
    def labels(self) -> Labels: ...


@dataclass(frozen=True, eq=False)
class Dual:
    """The duals of one family of constraints: one value per row, each with the row's label.

    Behaves like an array (``numpy.asarray(dual)``) and answers by label (``dual["gpu3"]``).

    Attributes
    ----------
    values
        (k,) duals, in the unit that the model's equation states.
    names
        (k,) names of the rows, or a function that makes them; see `labels`.
    """

    values: NDArray[Any]
    names: Sequence[str] | Callable[[], Sequence[str]] = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", locked(np.asarray(self.values)))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """(k,) names of the rows, in the instance's own names."""
        labels = tuple(self.names() if callable(self.names) else self.names)
        if len(labels) != len(self.values):
            raise ValueError(f"{len(labels)} labels for {len(self.values)} duals")
        return labels

    @classmethod
    def of_block(cls, block: _Block, values: NDArray[Any]) -> Dual:
        """Duals of a block of rows or arcs of a formulation, labelled as the block is.

        Parameters
        ----------
        block
            A block of k rows or arcs; its labels are made only when `labels` is read, which checks their number.
        values
            (k,) one dual per row or arc, in the order of the block.
        """
        return cls(values, lambda: block_labels(block.count, block.labels))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)

    def __getitem__(self, label: str) -> Any:
        try:
            return self.values.tolist()[self.labels.index(label)]
        except ValueError:
            known = ", ".join(self.labels[:5]) + (", ..." if len(self.labels) > 5 else "")
            near = did_you_mean(str(label), self.labels)
            raise KeyError(f"no dual for {label!r}{near}; there are: {known}") from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values.tolist())

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}: {float(v):g}" for k, v in zip(self.labels[:6], self.values[:6].tolist(), strict=True))
        return f"<Dual {shown}{', ...' if len(self) > 6 else ''}>"

    def to_dict(self) -> dict[str, Any]:
        """Label to value; a fraction as text, which JSON carries exactly."""
        values = (str(value) if isinstance(value, Fraction) else value for value in self.values.tolist())
        return dict(zip(self.labels, values, strict=True))

    def to_series(self) -> pd.Series:
        """A pandas series indexed by label."""
        import pandas as pd

        return pd.Series(self.values, index=list(self.labels))


class NoDualsError(FlowlexError, KeyError):
    """A solution has no duals of this name."""

    def __str__(self) -> str:
        return str(self.args[0])


class Duals(dict[str, Dual]):
    """Families of duals by the name of their constraint."""

    def __missing__(self, name: str) -> Dual:
        known = f"there are: {', '.join(self)}" if self else "this solution has none"
        raise NoDualsError(f"no duals of {name!r}{did_you_mean(str(name), self)}; {known}")
