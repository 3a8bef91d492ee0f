"""What is stored of earlier timelines: a tree over token ids, a page a node, and what to let go of first.

A node holds the tokens of one page, all 16 of them unless it is a leaf. Layers that keep every position need no more
than the nodes down to a length to go on from there. Where layers forget (windows, recurrent state), a checkpoint keeps
what they need at one length; without one the length is not resumable.

Worth of a thing kept: how likely it is asked for again, times the tokens that would have to be computed again, by byte.
Later tokens cost more, since they attend to more. Fetching costs nothing: pages are used where they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from localinfer.kv.spec import PAGE_TOKENS
from localinfer.records import dataclass, field, replace

HALF_LIFE_TURNS = 8  # after so many turns without use, something is half as likely to be asked for
ATTENTION_TOKENS = 4096  # at about this depth attention costs as much as all else


def worth(n_tokens: int, end: int, hits: int, age: int, n_bytes: int) -> float:
    """Of keeping n_tokens that end at position `end`, used `hits` times, last `age` turns ago."""
    probability = (1 + hits) / (2 + hits) * 0.5 ** (age / HALF_LIFE_TURNS)
    return probability * n_tokens * (1 + end / ATTENTION_TOKENS) / max(1, n_bytes)


@dataclass(eq=False)
class Checkpoint:
    """What forgetful layers need to go on from `length` (from `lowest` to `length`, where state allows)."""

    length: int
    lowest: int
    pages: list[dict[int, int]]  # by class: logical page -> page, each with a reference
    state: int | None  # slot of the copied recurrent state
    used: int = 0  # turn of the last use
    hits: int = 0

    def covers(self, length: int) -> bool:
        return self.lowest <= length <= self.length


@dataclass(eq=False)
class Node:
    """One page of tokens. `page` is -1 where no layer keeps every position."""

    parent: Node | None
    depth: int  # its logical page
    tokens: tuple[int, ...]
    page: int
    children: dict[tuple[int, ...], Node] = field(default_factory=dict)
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)  # by length
    used: int = 0
    hits: int = 0

    @property
    def start(self) -> int:
        """Position of its first token."""
        return self.depth * PAGE_TOKENS

    def below(self) -> Iterator[Node]:
        """This node and all under it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def chain(self) -> list[Node]:
        """The nodes from the first page to this one."""
        found, node = [], self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]


@dataclass(frozen=True)
class Match:
    """`length` tokens of a prompt are stored along the pages down to `node`."""

    length: int
    node: Node
    checkpoint: Checkpoint | None = None
    shared: int = 0  # tokens that the prompt has in common with a stored timeline, whether one may go on from there


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest prefix that both share."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class PrefixTree:
    """`forgetful`: there are layers that need checkpoints."""

    def __init__(self, forgetful: bool) -> None:
        self.root = Node(None, -1, (), -1)
        self._forgetful = forgetful

    def nodes(self) -> Iterator[Node]:
        return (node for node in self.root.below() if node is not self.root)

    def checkpoints(self) -> Iterator[tuple[Node, Checkpoint]]:
        return ((node, c) for node in self.nodes() for c in node.checkpoints.values())

    def child(self, node: Node, tokens: tuple[int, ...]) -> Node | None:
        """The child that holds these tokens of a page, or more."""
        exact = node.children.get(tokens)
        if exact or len(tokens) == PAGE_TOKENS:
            return exact
        return next((c for t, c in node.children.items() if t[: len(tokens)] == tokens), None)

    def shorter_leaf(self, node: Node, tokens: tuple[int, ...]) -> Node | None:
        """A leaf that holds the beginning of these tokens only."""
        return next((c for t, c in node.children.items() if tokens[: len(t)] == t), None)

    def add(self, parent: Node, tokens: tuple[int, ...], page: int) -> Node:
        node = parent.children[tokens] = Node(parent, parent.depth + 1, tokens, page)
        return node

    def lengthen(self, node: Node, tokens: tuple[int, ...], page: int) -> None:
        """A leaf takes on more tokens, and the page that holds them."""
        assert node.parent is not None and not node.children
        del node.parent.children[node.tokens]
        node.tokens, node.page = tokens, page
        node.parent.children[tokens] = node

    def remove(self, node: Node) -> None:
        assert node.parent is not None and not node.children and not node.checkpoints
        del node.parent.children[node.tokens]

    def match(self, ids: Sequence[int]) -> Match:
        """The most tokens of `ids` that a stored timeline begins with and that one may go on from."""
        node, best = self.root, Match(0, self.root)
        while True:
            start = node.start + PAGE_TOKENS
            page = tuple(ids[start : start + PAGE_TOKENS])
            whole = node.children.get(page) if len(page) == PAGE_TOKENS else None
            if whole is None or self._forgetful:
                best = max((best, *self._candidates(node, page)), key=lambda m: m.length)
            if whole is None:
                further = max((common_prefix(tokens, page) for tokens in node.children), default=0)
                return replace(best, shared=start + further)
            node = whole
            if not self._forgetful:
                best = Match(node.start + PAGE_TOKENS, node)

    def _candidates(self, node: Node, page: tuple[int, ...]) -> Iterator[Match]:
        """Lengths within the next page that one may go on from."""
        start = node.start + PAGE_TOKENS
        for child in node.children.values():
            k = common_prefix(child.tokens, page)
            last = child if k else node
            if not self._forgetful:
                yield Match(start + k, last)
                continue
            for c in child.checkpoints.values():
                if c.length <= start + k:
                    yield Match(c.length, child, c)
            for below in child.below() if k < PAGE_TOKENS else (child,):
                for c in below.checkpoints.values():
                    if start + k and c.covers(start + k):
                        yield Match(start + k, last, c)

    def worth_of_page(self, node: Node, turn: int, page_bytes: int) -> float:
        """Of a leaf's page."""
        return worth(len(node.tokens), node.start, node.hits, turn - node.used, page_bytes)

    def worth_of_checkpoint(self, node: Node, checkpoint: Checkpoint, turn: int, n_bytes: int) -> float:
        """By the tokens back to the checkpoint before it, which would serve in its place."""
        before = max((c.length for n in node.chain() for c in n.checkpoints.values() if c.length < checkpoint.length),
                     default=0)  # fmt: skip
        age = turn - checkpoint.used
        return worth(checkpoint.length - before, checkpoint.length, checkpoint.hits, age, n_bytes)
