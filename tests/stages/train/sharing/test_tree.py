"""Rows as a tree: nothing lost, nothing twice, every trained token predicted from its own row."""

from __future__ import annotations

from flywheel.stages.train.sharing.tree import Row, Tree, grow
from hypothesis import given
from hypothesis import strategies as st

tokens = st.lists(st.integers(0, 2), max_size=12)


@st.composite
def made_rows(draw: st.DrawFn) -> list[Row]:
    """Rows that often begin alike, each with one or two trained windows."""
    beginnings = draw(st.lists(tokens, min_size=1, max_size=3))
    rows = []
    for _ in range(draw(st.integers(0, 7))):
        ids = (*draw(st.sampled_from(beginnings)), *draw(tokens))
        cuts = sorted(draw(st.lists(st.integers(0, len(ids)), min_size=4, max_size=4)))
        rows.append(Row(ids, ((cuts[0], cuts[1]), (cuts[2], cuts[3]))))
    return rows


def visible(tree: Tree, place: int) -> list[int]:
    """What a place may look at, as the blocks say: its context, then its own segment up to it."""
    (block,) = [b for b in tree.blocks if b.start <= place < b.end]
    before = [p for a, b in block.context for p in range(a, b)]
    own = [p for p in range(block.start, place + 1) if tree.owners[p] == tree.owners[place]]
    return [*before, *own]


@given(made_rows(), st.integers(1, 4))
def test_every_trained_token_sees_exactly_its_own_row(rows: list[Row], least: int) -> None:
    tree = grow(rows, least)
    assert len(tree.rows) == len(rows)
    for row, found in zip(rows, tree.rows, strict=True):
        assert [tree.targets[i] for i in found] == [row.ids[p] for p in row.trained]
        for i, p in zip(found, row.trained, strict=True):
            seen = visible(tree, tree.sources[i])
            assert [tree.ids[place] for place in seen] == list(row.ids[:p])
            assert [tree.positions[place] for place in seen] == list(range(p))


@given(made_rows())
def test_with_a_least_of_one_a_token_stands_once_for_every_beginning(rows: list[Row]) -> None:
    tree = grow(rows, 1)
    assert len(tree.ids) == len({row.ids[: n + 1] for row in rows for n in range(len(row.ids))})
    assert tree.plain == sum(len(row.ids) for row in rows)
    assert len(set(zip(tree.sources, tree.targets, strict=True))) == len(tree.sources)


@given(made_rows(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(rows: list[Row], least: int, chance: object) -> None:
    mixed = list(rows)
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    one, other = grow(rows, least), grow(mixed, least)
    assert (one.ids, one.segments, one.blocks) == (other.ids, other.segments, other.blocks)


def test_a_conversation_and_its_alternatives_are_one_tree_of_several_levels() -> None:
    system, first, result = tuple(range(100, 120)), tuple(range(20)), tuple(range(40, 60))
    rows = [
        Row((*system, *first, 1), ((40, 41),)),
        Row((*system, *first, 2, 3), ((40, 42),)),
        Row((*system, *first, 2, 3, *result, 5), ((62, 63),)),
        Row((*system, *first, 2, 3, *result, 6), ((62, 63),)),
    ]
    tree = grow(rows)
    assert [(s.depth, s.end - s.start, s.parent) for s in tree.segments] == [
        (0, 40, -1),
        (40, 1, 0),
        (40, 2, 0),
        (40, 22, 0),
        (62, 1, 3),
        (62, 1, 3),
    ]
    assert tree.plain == 41 + 42 + 63 + 63
    assert len(tree.ids) == 40 + 1 + 2 + 22 + 2  # two tokens stand twice: too few for a level


def test_a_short_shared_piece_is_not_worth_a_level() -> None:
    rows = [Row((1, 2, 3), ((1, 3),)), Row((1, 2, 4), ((1, 3),))]
    assert len(grow(rows).segments) == 2
    assert len(grow(rows, 1).segments) == 3
