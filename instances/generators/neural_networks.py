"""One training iteration of five convolutional networks, built from their layer tables.

Every layer's shapes give the bytes of its parameter tensors (32-bit floats) and the floating-point operations of
its elementary operations, per sample; the order of the layers gives the DAG. An iteration is the forward pass,
the backward pass, and one update per tensor. A tensor feeds the forward operation that uses it.

The paper counts TensorFlow's graph operations, which include bookkeeping that is in no layer table. `iteration`
pads our own count up to the paper's with operations of zero seconds; `table` (our own arithmetic) next to
`PAPER_TABLE` shows by how much. Our own count is never above the paper's.

Source: the workload of Shi et al. 2021 (docs/papers/jit-bandwidth.md); the layers are those of
the networks' own papers, with
the ten classes that the table's totals imply.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from flowlex.instances.generators.convolution_arithmetic import Layers, Operation

NETWORKS = ("LeNet", "AlexNet", "VGG16", "InceptionV3", "ResNet152")


@dataclass(frozen=True)
class TableRow:
    """One row of the workload table: counts, and the total of the tensors in MiB (2**20 bytes)."""

    transfers: int
    mebibytes: float
    computations: int


#: The paper's table as printed.
PAPER_TABLE = {
    "LeNet": TableRow(8, 12.5, 123),
    "AlexNet": TableRow(16, 82.5, 161),
    "VGG16": TableRow(32, 512.3, 351),
    "InceptionV3": TableRow(190, 83.1, 1384),
    "ResNet152": TableRow(932, 226.5, 2641),
}


@dataclass(frozen=True)
class Step:
    """A computation of an iteration: floating-point operations per sample, and the names of its predecessors."""

    name: str
    flops: float
    after: tuple[str, ...]


def table(name: str) -> TableRow:
    """Counts and total of our own layer arithmetic, without padding (compare `PAPER_TABLE`)."""
    tensors = [floats for operation in forward(name) for _, floats in operation.tensors]
    return TableRow(len(tensors), sum(tensors) * 4 / 2**20, len(_steps(name)))


@cache
def iteration(name: str) -> tuple[Step, ...]:
    """Return the computations of one iteration, padded to the count of the paper's table (see the module)."""
    steps = _steps(name)
    missing = PAPER_TABLE[name].computations - len(steps)
    padding = (Step(f"bookkeeping.{k}", 0.0, (steps[k % len(steps)].name,)) for k in range(missing))
    return (*steps, *padding)


@cache
def forward(name: str) -> tuple[Operation, ...]:
    """The forward pass of one of the `NETWORKS`, in order."""
    builders = dict(zip(NETWORKS, (_lenet, _alexnet, _vgg16, _inception_v3, _resnet152), strict=True))
    return tuple(builders[name]().operations)


@cache
def _steps(name: str) -> tuple[Step, ...]:
    """Forward, backward (gradients by input and by weights), and one update per tensor."""
    operations = forward(name)
    steps = [Step(o.name, o.flops, o.after) for o in operations]
    followers: dict[str, list[str]] = {o.name: [] for o in operations}
    for operation in operations:
        for before in operation.after:
            followers[before].append(operation.name)
    for operation in reversed(operations):
        later = tuple(f"{f}.gradient" for f in followers[operation.name]) or (operation.name,)
        steps.append(Step(f"{operation.name}.gradient", operation.flops, later))
        if operation.has_weights:
            steps.append(Step(f"{operation.name}.weight_gradient", operation.flops, later))
    for operation in operations:
        source = "weight_gradient" if operation.has_weights else "gradient"
        steps += [
            Step(f"{tensor}.update", float(floats), (f"{operation.name}.{source}",))
            for tensor, floats in operation.tensors
        ]
    return tuple(steps)


def _classifier(net: Layers, first: int, *widths: int) -> Layers:
    """Dense layers with rectifiers, numbered from ``first``, then ten classes and the loss."""
    for k, width in enumerate(widths, first):
        net.dense(f"fc{k}", width)
        net.relu(f"fc{k}.relu")
    net.dense(f"fc{first + len(widths)}", 10)
    net.loss()
    return net


def _lenet() -> Layers:
    net = Layers(28, 28, 1)
    for k, filters in enumerate((32, 64), start=1):
        net.convolution(f"conv{k}", filters, 5, bias=True)
        net.relu(f"conv{k}.relu")
        net.pool(f"pool{k}", 2, 2)
    return _classifier(net, 1, 1024)


def _alexnet() -> Layers:
    """AlexNet on 32 x 32 pictures: the table's 82.5 MiB imply a last feature map of 1 x 1 x 256."""
    net = Layers(32, 32, 3)
    for k, (filters, kernel, stride, pooled) in enumerate(
        ((96, 11, 4, True), (256, 5, 1, True), (384, 3, 1, False), (384, 3, 1, False), (256, 3, 1, True)), start=1
    ):
        net.convolution(f"conv{k}", filters, kernel, stride=stride, bias=True)
        net.relu(f"conv{k}.relu")
        if pooled:
            net.pool(f"pool{k}", 3, 2)
    return _classifier(net, 6, 4096, 4096)


def _vgg16() -> Layers:
    net = Layers(224, 224, 3)
    for group, (filters, repeats) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), start=1):
        for k in range(1, repeats + 1):
            net.convolution(f"conv{group}_{k}", filters, 3, bias=True)
            net.relu(f"conv{group}_{k}.relu")
        net.pool(f"pool{group}", 2, 2)
    return _classifier(net, 6, 4096, 4096)


#: Convolutions one after another: filters, height, width, stride.
Convolutions = tuple[tuple[int, int, int, int], ...]
#: A branch of an Inception block; "avg" and "max" start with a pooling.
Branch = tuple[str, Convolutions]


def _inception_v3() -> Layers:
    net = Layers(299, 299, 3)
    _normed(net, "stem1", 32, 3, 3, 2, same=False)
    _normed(net, "stem2", 32, 3, 3, 1, same=False)
    _normed(net, "stem3", 64, 3, 3, 1)
    net.pool("stem.pool1", 3, 2, same=False)
    _normed(net, "stem4", 80, 1, 1, 1, same=False)
    _normed(net, "stem5", 192, 3, 3, 1, same=False)
    net.pool("stem.pool2", 3, 2, same=False)
    for k, width in enumerate((32, 64, 64)):
        double: Convolutions = ((64, 1, 1, 1), (96, 3, 3, 1), (96, 3, 3, 1))
        five = ((48, 1, 1, 1), (64, 5, 5, 1))
        _block(net, f"mixed{k}", [("", ((64, 1, 1, 1),)), ("", five), ("", double), ("avg", ((width, 1, 1, 1),))])
    _block(
        net,
        "mixed3",
        [("", ((384, 3, 3, 2),)), ("", ((64, 1, 1, 1), (96, 3, 3, 1), (96, 3, 3, 2))), ("max", ())],
    )
    for k, c in enumerate((128, 160, 160, 192), start=4):
        seven: Convolutions = ((c, 1, 1, 1), (c, 1, 7, 1), (192, 7, 1, 1))
        double = ((c, 1, 1, 1), (c, 7, 1, 1), (c, 1, 7, 1), (c, 7, 1, 1), (192, 1, 7, 1))
        _block(
            net,
            f"mixed{k}",
            [("", ((192, 1, 1, 1),)), ("", seven), ("", double), ("avg", ((192, 1, 1, 1),))],
        )
    seven = ((192, 1, 1, 1), (192, 1, 7, 1), (192, 7, 1, 1), (192, 3, 3, 2))
    _block(net, "mixed8", [("", ((192, 1, 1, 1), (320, 3, 3, 2))), ("", seven), ("max", ())])
    for k in (9, 10):
        _last_block(net, f"mixed{k}")
    net.global_pool("pool")
    net.dense("fc", 10)
    net.loss()
    return net


def _normed(net: Layers, name: str, filters: int, high: int, wide: int, stride: int, *, same: bool = True) -> str:
    """Convolution, batch normalisation (its beta is the only other tensor), rectifier."""
    net.convolution(name, filters, (high, wide), stride=stride, same=same)
    net.normalisation(f"{name}.norm", ("beta",))
    return net.relu(f"{name}.relu")


def _block(net: Layers, name: str, branches: list[Branch]) -> None:
    start, shape = net.last, net.shape
    ends = []
    for b, (pooling, convolutions) in enumerate(branches):
        net.go_to(start, shape)
        if pooling:
            stride = 2 if pooling == "max" else 1
            net.pool(f"{name}.{b}.pool", 3, stride, same=stride == 1)
        for k, (filters, high, wide, stride) in enumerate(convolutions):
            _normed(net, f"{name}.{b}.{k}", filters, high, wide, stride, same=stride == 1)
        ends.append((net.last, net.shape))
    net.join(f"{name}.concat", ends, channels=sum(shape[2] for _, shape in ends))


def _last_block(net: Layers, name: str) -> None:
    """The blocks whose branches split once more into 1 x 3 and 3 x 1."""
    start, shape = net.last, net.shape
    _normed(net, f"{name}.0", 320, 1, 1, 1)
    ends = [(net.last, net.shape)]
    for b, stem in enumerate((((384, 1),), ((448, 1), (384, 3))), start=1):
        net.go_to(start, shape)
        for k, (filters, kernel) in enumerate(stem):
            _normed(net, f"{name}.{b}.{k}", filters, kernel, kernel, 1)
        fork, fork_shape = net.last, net.shape
        for k, (high, wide) in enumerate(((1, 3), (3, 1))):
            net.go_to(fork, fork_shape)
            _normed(net, f"{name}.{b}.split{k}", 384, high, wide, 1)
            ends.append((net.last, net.shape))
    net.go_to(start, shape)
    net.pool(f"{name}.pool", 3, 1)
    _normed(net, f"{name}.3", 192, 1, 1, 1)
    ends.append((net.last, net.shape))
    net.join(f"{name}.concat", ends, channels=sum(shape[2] for _, shape in ends))


def _resnet152() -> Layers:
    """Six tensors a convolution: weights and biases, and the four of a batch normalisation."""
    net = Layers(224, 224, 3)
    _residual(net, "conv1", 64, 7, 2)
    net.relu("conv1.relu")
    net.pool("pool1", 3, 2)
    for stage, (filters, blocks) in enumerate(((64, 3), (128, 8), (256, 36), (512, 3)), start=2):
        for block in range(1, blocks + 1):
            stride = 2 if stage > 2 and block == 1 else 1
            _bottleneck(net, f"conv{stage}_{block}", filters, stride, shortcut=block == 1)
    net.global_pool("pool")
    net.dense("fc", 10)
    net.loss()
    return net


def _residual(net: Layers, name: str, filters: int, kernel: int, stride: int) -> None:
    net.convolution(name, filters, kernel, stride=stride, bias=True)
    net.normalisation(f"{name}.norm", ("gamma", "beta", "mean", "variance"))


def _bottleneck(net: Layers, name: str, filters: int, stride: int, *, shortcut: bool) -> None:
    start, shape = net.last, net.shape
    for k, (width, kernel) in enumerate(((filters, 1), (filters, 3), (4 * filters, 1)), start=1):
        _residual(net, f"{name}.{k}", width, kernel, stride if k == 1 else 1)
        if k < 3:
            net.relu(f"{name}.{k}.relu")
    end = (net.last, net.shape)
    if shortcut:
        net.go_to(start, shape)
        _residual(net, f"{name}.0", 4 * filters, 1, stride)
        start = net.last
    net.join(f"{name}.add", [end, (start, end[1])], channels=4 * filters)
    net.relu(f"{name}.relu")
