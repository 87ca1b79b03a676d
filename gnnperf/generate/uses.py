"""What the ops of a planned program do to memory: which tensors each one takes, and which it makes.

    use("aten::mm", "gelu", down=x)        takes gelu, makes down of x bytes

A tensor lives from the op that makes it to the last op that takes it; whether that is in the forward or in the backward
pass follows from who takes it, so what autograd keeps needs no rule of its own. A name that is made again is another
tensor: recomputation makes it twice, and the first one goes with its last use before that.
"""

from dataclasses import dataclass, field
from enum import StrEnum

# What the neighbor after takes: activations forward, their gradient backward. There they are called x and dy.
LEAVES = ("y", "dx")


@dataclass(frozen=True)
class Use:
    """What one op takes and makes."""

    op: str  # as the program's item names it, or a word for what is no op (recv, data)
    takes: tuple[str, ...] = ()  # names of tensors
    makes: tuple[tuple[str, int], ...] = ()  # name -> bytes
    gradients_bytes: tuple[int, ...] = ()  # gradients of parameters that it makes and that stay until the step's end
    # nothing but the update waits for it; a backward pass in two parts runs it in the second one
    of_weights: bool = False


@dataclass(frozen=True)
class Pair:
    """A stretch of a program, forward and backward; tensors pass to the next stretch as in LEAVES."""

    # forward, backward: in order
    forward: tuple[Use, ...]
    backward: tuple[Use, ...]
    enters: dict[str, int] = field(default_factory=dict)  # x and dy, those that come from a neighbor -> bytes
    weights: tuple[Use, ...] = ()  # what follows the backward pass later, where that has two parts

    def split(self) -> "Pair":
        """The same with a backward pass in two parts: gradients of inputs, then of weights."""
        inputs, weights = (tuple(u for u in self.backward if u.of_weights is part) for part in (False, True))
        return Pair(self.forward, inputs, self.enters, weights)


@dataclass(frozen=True)
class Stretch:
    """One run of a pair, in one direction."""

    pair: "Pair"  # see there
    backward: bool  # or forward
    of_weights: bool = False  # the second part of a backward pass


class HeldFor(StrEnum):
    """What memory between stretches is for."""

    ACTIVATIONS = "activations"
    GRADIENTS = "gradients"
    GATHERED = "gathered"  # parameters in parts, whole for a while, and the buffers of their gathers
    TEMPORARY = "temporary"  # buffers of messages


@dataclass(frozen=True)
class Hold:
    """Memory that comes or goes between stretches."""

    op: str  # that makes it, or a word
    held_for: HeldFor  # see there
    num_bytes: int  # of one tensor; negative: it goes


@dataclass(frozen=True)
class RankTensors:
    """All memory of one rank of a plan."""

    rank: int  # of those that hold the same, the first
    # parameters_bytes, gradients_bytes, state_bytes: held all the time, one number per tensor
    parameters_bytes: tuple[int, ...]
    gradients_bytes: tuple[int, ...]
    state_bytes: tuple[int, ...]
    stretches: tuple[Stretch | Hold, ...]  # of the step, in order, with what comes and goes between them
    inputs_bytes: tuple[int, ...] = ()  # the same of data and buffers of the model
    buckets_bytes: tuple[int, ...] = ()  # the same of DDP's copies of gradients
    assumed: tuple[str, ...] = ()  # sentences: what the account takes for granted


def use(op: str, takes: str = "", **makes: int) -> Use:
    """An op from the names of what it takes, apart by blanks, and of what it makes."""
    return Use(op, tuple(takes.split()), tuple(makes.items()))


def retained_bytes(pair: "Pair") -> int:
    """What a stretch's forward pass keeps for its backward pass."""
    made = {**pair.enters}
    for each in pair.forward:
        made.update(each.makes)
    taken: set[str] = set()
    for each in pair.backward:  # what is made again there is another tensor
        taken.update(name for name in each.takes if name in made)
        for name, _ in each.makes:
            if name not in taken:
                made.pop(name, None)
    return sum(made[name] for name in taken if name not in LEAVES and name != "dy")
