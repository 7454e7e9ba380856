"""The table of standing figures: each benchmark writes its own rows."""

from benchmarks.measure import make_metric
from benchmarks.standing import HEAD, keep


def test_a_benchmark_replaces_its_own_rows_and_no_others(tmp_path):
    page = tmp_path / "RESULTS.md"
    page.write_text(f"# Results\n\n{HEAD}\nAfter it.\n")
    keep("step", {"step.ratio": make_metric([1.0, 3.0, 2.0], 1.5), "step.seconds": make_metric([5.0])}, page)
    keep("flood", {"flood.rate": make_metric([120_000.0], 100_000, more_is_better=True)}, page)
    keep("step", {"step.ratio": make_metric([1.25], 1.5)}, page)
    before, _, rest = page.read_text().partition(HEAD)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in rest.splitlines() if line[:1] == "|"]
    assert before == "# Results\n\n"
    assert rest.endswith("|\n\nAfter it.\n")
    assert [(row[:4], row[6]) for row in rows] == [
        (["`flood.rate`", "120,000", "≥ 100,000", "yes"], "`python -m benchmarks flood`"),
        (["`step.ratio`", "1.25", "≤ 1.5", "yes"], "`python -m benchmarks step`"),
    ]


def test_a_figure_that_misses_its_target_says_so(tmp_path):
    page = tmp_path / "RESULTS.md"
    page.write_text(HEAD)
    keep("step", {"step.ratio": make_metric([1.0, 3.0, 2.0], 1.5)}, page)
    assert "| 2 (1 to 3) | ≤ 1.5 | **no** |" in page.read_text()
