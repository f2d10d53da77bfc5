"""Layer arithmetic of convolutional networks: output shapes, parameter tensors, floating-point operations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

#: Height, width, channels.
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Operation:
    """An elementary operation of the forward pass."""

    name: str
    flops: float  # floating-point operations per sample
    after: tuple[str, ...]
    tensors: tuple[tuple[str, int], ...] = ()  # its parameter tensors: name and number of floats
    has_weights: bool = False  # whether its backward pass is two operations (gradients by input and by weights)


@dataclass
class Layers:
    """A network under construction: every method appends operations after the last one."""

    # height, width, channels: shape of one input sample
    height: int
    width: int
    channels: int
    operations: list[Operation] = field(default_factory=list)
    last: str = ""

    @property
    def shape(self) -> Shape:
        """Shape of the last operation's output."""
        return (self.height, self.width, self.channels)

    @property
    def size(self) -> int:
        """Number of floats of the last operation's output."""
        return self.height * self.width * self.channels

    def go_to(self, last: str, shape: Shape) -> None:
        """Continue from an earlier operation (to branch)."""
        self.last = last
        self.height, self.width, self.channels = shape

    def convolution(
        self,
        name: str,
        filters: int,
        kernel: int | tuple[int, int],
        *,
        stride: int = 1,
        same: bool = True,
        bias: bool = False,
    ) -> str:
        """Two-dimensional convolution, with its bias as a separate operation."""
        high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
        weights = high * wide * self.channels * filters
        self._slide(high, wide, stride, same)
        self.channels = filters
        flops = 2.0 * weights * self.height * self.width
        self._append(name, flops, ((f"{name}.weights", weights),), has_weights=True)
        return self._bias(name) if bias else self.last

    def dense(self, name: str, width: int) -> str:
        """Fully connected layer with bias; the input is flattened."""
        weights = self.size * width
        self.height, self.width, self.channels = 1, 1, width
        self._append(name, 2.0 * weights, ((f"{name}.weights", weights),), has_weights=True)
        return self._bias(name)

    def normalisation(self, name: str, tensors: tuple[str, ...]) -> str:
        """Batch normalisation with the named tensors, one float per channel each."""
        return self._append(name, 4.0 * self.size, tuple((f"{name}.{tensor}", self.channels) for tensor in tensors))

    def relu(self, name: str) -> str:
        """Rectifier."""
        return self._append(name, float(self.size))

    def pool(self, name: str, kernel: int, stride: int, *, same: bool = True) -> str:
        """Maximum or mean over a moving window."""
        self._slide(kernel, kernel, stride, same)
        return self._append(name, float(self.size * kernel * kernel))

    def global_pool(self, name: str) -> str:
        """Mean over the whole picture."""
        flops = float(self.size)
        self.height = self.width = 1
        return self._append(name, flops)

    def join(self, name: str, ends: list[tuple[str, Shape]], *, channels: int) -> str:
        """Concatenate or add branches."""
        self.height, self.width = ends[0][1][:2]
        self.channels = channels
        self.operations.append(Operation(name, float(self.size), tuple(end for end, _ in ends)))
        self.last = name
        return name

    def loss(self) -> str:
        """Softmax and cross-entropy."""
        self._append("softmax", 3.0 * self.size)
        return self._append("loss", 2.0 * self.size)

    def _bias(self, name: str) -> str:
        return self._append(f"{name}.bias", float(self.size), ((f"{name}.biases", self.channels),))

    def _slide(self, high: int, wide: int, stride: int, same: bool) -> None:
        """Shrink the picture; with ``same`` padding only the stride counts."""
        cut_high, cut_wide = (0, 0) if same else (high - 1, wide - 1)
        self.height = math.ceil((self.height - cut_high) / stride)
        self.width = math.ceil((self.width - cut_wide) / stride)

    def _append(
        self, name: str, flops: float, tensors: tuple[tuple[str, int], ...] = (), *, has_weights: bool = False
    ) -> str:
        after = (self.last,) if self.last else ()
        self.operations.append(Operation(name, flops, after, tensors, has_weights))
        self.last = name
        return name
