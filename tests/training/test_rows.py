import pytest

from seedflood.errors import DataError
from seedflood.training.rows import Table, choose_splits, hold_out, rows_in_memory, without_copies

ROWS = [{"text": f"row {number}"} for number in range(200)]


def table(rows):
    return Table(rows_in_memory(rows, "rows"))


def texts(part):
    return [row.columns["text"] for row in part.rows]


def readers(**splits):
    return {name: (lambda text=text: table([{"text": text}])) for name, text in splits.items()}


@pytest.mark.parametrize(("rows", "held"), [(2, 1), (40, 10), (200, 16)])
def test_a_twentieth_of_the_rows_is_held_out_or_a_few_and_not_trained_on(rows, held):
    splits = hold_out(table(ROWS[:rows]), "rows")
    assert splits.copies == 0
    assert len(splits.validation.rows) == held
    assert sorted(texts(splits.train) + texts(splits.validation)) == sorted(row["text"] for row in ROWS[:rows])


def test_a_twentieth_of_many_rows_is_held_out_but_no_more_than_a_thousand():
    for rows, held in ((400, 20), (25_000, 1000)):
        found = table([{"text": str(number)} for number in range(rows)])
        assert len(hold_out(found, "rows").validation.rows) == held


def test_the_same_rows_are_held_out_in_whatever_order_they_stand():
    first, second = (set(texts(hold_out(table(rows), "rows").validation)) for rows in (ROWS, ROWS[::-1]))
    assert first == second


def test_no_copy_of_a_row_that_is_held_out_is_trained_on():
    splits = hold_out(table(ROWS[:40] * 3), "rows")
    assert (len(splits.validation.rows), splits.copies) == (10, 20)
    assert not {*texts(splits.train)} & {*texts(splits.validation)}


def test_numbers_of_rows_do_not_hide_copies_of_those_that_are_held_out():
    rows = [{"text": str(k % 40), "label": k % 2, "id": k} for k in range(120)]
    splits = hold_out(table(rows), "rows")
    kept = without_copies(splits.train.rows, splits.validation.rows, ["text", "label"])
    assert {*texts(splits.train)} & {*texts(splits.validation)}
    assert not {*texts(table(row.columns for row in kept))} & {*texts(splits.validation)}
    alike = hold_out(table([{"text": "a", "id": k} for k in range(20)]), "rows")
    with pytest.raises(DataError, match="too few different rows: all are among those that are held out"):
        without_copies(alike.train.rows, alike.validation.rows, ["text"])


def test_rows_that_are_all_the_same_cannot_be_divided():
    with pytest.raises(DataError, match="rows has only one row, 9 times: one is needed to train, and another to"):
        hold_out(table(ROWS[:1] * 9), "rows")


@pytest.mark.parametrize(
    ("splits", "wanted", "chosen"),
    [
        (("train", "validation", "test"), (), ("train", "validation")),
        (("train", "validation", "test"), ("train", "test"), ("train", "test")),
        (("a", "b"), ("b", "a"), ("b", "a")),
        (("a", "b"), ("b", "b"), ("b", "b")),
    ],
)
def test_splits_are_train_and_validation_unless_others_are_named(splits, wanted, chosen):
    found = choose_splits(readers(**{one: one for one in splits}), wanted, "rows")
    assert (texts(found.train), texts(found.validation)) == ([chosen[0]], [chosen[1]])
    assert found.copies is None


@pytest.mark.parametrize(
    ("splits", "wanted"),
    [(("train",), ()), (("train", "test"), ()), (("other",), ()), (("train", "validation"), ("train",))],
)
def test_without_a_split_to_evaluate_on_rows_are_held_out_and_a_test_split_is_left_alone(splits, wanted):
    reading = {one: (lambda: table(ROWS)) for one in splits if one != "test"}
    assert choose_splits({**reading, **({"test": None} if "test" in splits else {})}, wanted, "rows").copies == 0


def test_splits_of_which_none_is_for_training_must_be_named():
    with pytest.raises(DataError, match="rows has no split train: name one of a, b behind it, as in rows#a"):
        choose_splits(readers(a="a", b="b"), (), "rows")


def test_a_split_for_testing_is_not_used_unless_it_is_named_even_if_there_is_no_other():
    with pytest.raises(DataError, match="rows has no split train: name one of test behind it, as in rows#test"):
        choose_splits({"test": lambda: table(ROWS)}, (), "rows")
    assert choose_splits({"test": lambda: table(ROWS)}, ("test",), "rows").copies == 0
