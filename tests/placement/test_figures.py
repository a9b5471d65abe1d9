"""Every figure is made and not blank, and the numbers that it shows are the solvers'."""

import io

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")

from matplotlib.figure import Figure  # noqa: E402
from matplotlib.image import imread  # noqa: E402

from tree_placement import balanced, expected_recompute, place  # noqa: E402
from tree_placement.figures import (  # noqa: E402
    PICTURES,
    Picture,
    budget,
    convergence,
    placement,
    render,
    tracking,
    trees,
)
from tree_placement.figures.shapes import GRID, LENGTH, all_shapes  # noqa: E402
from tree_placement.figures.style import COLUMN, column_figure, drawn  # noqa: E402
from tree_placement.overlap.guarantees import (  # noqa: E402
    best_decay,
    decayed_error,
    estimation_error,
    plug_in_regret,
)
from tree_placement.tree.exact import place_tree  # noqa: E402
from tree_placement.tree.prefix_tree import tree_recompute  # noqa: E402
from tree_placement.tree.shape import TreeShape, classify  # noqa: E402

BY_NAME = {picture.name: picture for picture in PICTURES}


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    return {picture.name: drawn(picture) for picture in PICTURES}


def of(figure: Figure) -> Picture:
    return Picture("drawn", lambda: figure)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_png_is_an_image_of_a_column_that_is_not_blank(figures, name: str) -> None:
    pixels = imread(io.BytesIO(render(of(figures[name]), "png")))
    assert pixels.shape[1] == pytest.approx(300 * COLUMN, abs=1)
    assert pixels.shape[0] < 300 * 8, "no higher than a page"
    ink = (pixels[:, :, :3] < 0.9).any(axis=2)
    assert 0.01 < ink.mean() < 0.5
    for edge in (ink[0], ink[-1], ink[:, 0], ink[:, -1]):
        assert not edge.any(), "nothing is clipped"


def test_a_blank_figure_would_be_seen() -> None:
    blank = imread(io.BytesIO(render(of(Figure(figsize=(COLUMN, 2.0))), "png")))
    assert not (blank[:, :, :3] < 0.9).any()


@pytest.mark.parametrize("name", BY_NAME)
def test_vector_files_are_whole_and_hold_no_bitmap(figures, name: str) -> None:
    pdf = render(of(figures[name]), "pdf")
    assert pdf.startswith(b"%PDF-")
    assert pdf.rstrip().endswith(b"%%EOF")
    assert b"/Subtype /Image" not in pdf
    svg = render(of(figures[name]), "svg").decode()
    assert svg.startswith("<?xml")
    assert svg.rstrip().endswith("</svg>")
    assert "<image" not in svg


def test_the_same_bytes_each_time(figures) -> None:
    for form in ("pdf", "svg", "png"):
        assert render(BY_NAME["budget"], form) == render(BY_NAME["budget"], form)


@pytest.mark.parametrize("name", BY_NAME)
def test_no_texts_overlap(figures, name: str) -> None:
    assert overlapping_texts(figures[name]) == []


def test_overlapping_texts_would_be_seen() -> None:
    figure = column_figure(2.0)
    axes = figure.subplots()
    axes.set_xticks([0.50, 0.51], ["one tick", "its neighbour"])
    assert ("its neighbour", "one tick") in overlapping_texts(figure)
    axes.set_xticks([])
    axes.set_yticks([])
    assert overlapping_texts(figure) == []
    axes.text(0.5, 0.5, "one")
    axes.text(0.5, 0.52, "other")
    assert overlapping_texts(figure) == [("other", "one")]


def overlapping_texts(figure: Figure) -> list[tuple[str, str]]:
    """Return pairs of texts of which one covers a part of the other."""
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    texts = [
        text
        for text in figure.findobj(matplotlib.text.Text)
        if text.get_visible() and text.get_text().strip()
    ]
    boxes = [text.get_window_extent(renderer) for text in texts]
    ticks = {id(label) for axes in figure.axes for label in _unused_ticks(axes)}
    found = []
    for i, (one, box) in enumerate(zip(texts, boxes, strict=True)):
        for other, its_box in zip(texts[:i], boxes[:i], strict=True):
            if id(one) in ticks or id(other) in ticks:
                continue
            overlap = box.x0 < its_box.x1 and its_box.x0 < box.x1
            overlap = overlap and box.y0 < its_box.y1 and its_box.y0 < box.y1
            if overlap:
                found.append((one.get_text(), other.get_text()))
    return found


def _unused_ticks(axes: object) -> list:
    """Return tick labels outside the axes' limits, which matplotlib keeps but does not draw."""
    unused = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for which in ("major", "minor"):
            ticks = axis.get_major_ticks() if which == "major" else axis.get_minor_ticks()
            for tick in ticks:
                if not low <= tick.get_loc() <= high:
                    unused += [tick.label1, tick.label2]
                elif not tick.label1.get_visible():
                    unused.append(tick.label1)
    return unused


@pytest.mark.parametrize("name", BY_NAME)
def test_axes_say_what_they_show_and_in_which_unit(figures, name: str) -> None:
    figure = figures[name]
    labels = [axes.get_xlabel() for axes in figure.axes] + [
        axes.get_ylabel() for axes in figure.axes
    ]
    labels.append(figure.get_supylabel())
    assert any("tokens" in label for label in labels)
    assert all(axes.get_xlabel() for axes in figure.axes[-1:])


def test_placement_shows_the_optimum_beside_even_spacing(figures) -> None:
    panels = figures["placement"].axes
    shapes = all_shapes()
    assert len(panels) == 2 * len(shapes) == 8
    for number, shape in enumerate(shapes):
        assert shape.weights.sum() == pytest.approx(1.0)
        optimal = place(shape.weights, placement.STATES, grid=GRID)
        even = balanced(LENGTH, placement.STATES, grid=GRID)
        for axes, depths in zip(
            panels[2 * number : 2 * number + 2], (even, optimal.depths), strict=True
        ):
            lines = {line.get_label(): line for line in axes.get_lines()}
            assert lines["state"].get_xdata().tolist() == depths.tolist()
            mean = expected_recompute(shape.weights, depths)
            assert f"mean {mean:,.0f} tokens" in axes.get_title()
            x, y = lines["recompute"].get_xdata(), lines["recompute"].get_ydata()
            for overlap in (1, 777, 4_000, LENGTH):
                serving = max([0, *depths[depths <= overlap].tolist()])
                after = int(np.searchsorted(x, overlap, side="right"))
                if overlap not in x:
                    shown = np.interp(overlap, x[after - 1 : after + 1], y[after - 1 : after + 1])
                    assert shown == pytest.approx(overlap - serving)
        assert optimal.cost < expected_recompute(shape.weights, even)


def test_budget_shows_every_strategy_and_none_below_the_optimum(figures) -> None:
    axes = figures["budget"].axes[0]
    weights = all_shapes()[0].weights
    lines = {line.get_label(): line for line in axes.get_lines()}
    names = {"none", "block", "balanced", "square root", "logarithmic", "optimal"}
    assert set(lines) == names
    for count, cost in zip(*lines["optimal"].get_data(), strict=True):
        truth = place(weights, int(count), grid=GRID)
        assert cost == truth.cost
    assert lines["none"].get_ydata()[0] == expected_recompute(weights, [])
    for name in names - {"none"}:
        for count, cost in zip(*lines[name].get_data(), strict=True):
            assert cost >= place(weights, int(count), grid=GRID).cost * (1 - 1e-12)
    assert {curve.name for curve in budget.curves()} == names


def test_trees_show_the_optimum_of_a_star_a_comb_and_a_general_tree(figures) -> None:
    shapes = [TreeShape.STAR, TreeShape.COMB, TreeShape.GENERAL]
    for axes, example, shape in zip(figures["trees"].axes, trees.examples(), shapes, strict=True):
        assert classify(example.tree) is shape
        states = example.placement.states
        truth = place_tree(example.tree, len(states), grid=trees.GRID)
        assert tree_recompute(example.tree, states) == truth.cost
        assert f"{len(states)} states" in axes.get_title(loc="left")
        assert f"{truth.cost:,.0f} tokens" in axes.get_title(loc="left")
        drawn_states = axes.collections[1].get_offsets()
        tree = example.tree
        depths = [tree.depths[n] - tree.lengths[n] + within for n, within in states]
        assert drawn_states[:, 0].tolist() == depths
        rows = trees.rows_of(tree)
        leaves = np.flatnonzero(tree.heights == 0)
        assert sorted(rows[leaves].tolist()) == list(range(leaves.size))


def test_convergence_stays_below_its_bound_and_falls(figures) -> None:
    lines = [line.get_ydata() for line in figures["convergence"].axes[0].get_lines()]
    bound, known, high, mean = lines
    length, support = convergence.LENGTH, convergence.SUPPORT
    for size, value in zip(convergence.SIZES, bound, strict=True):
        error = estimation_error(support, size, convergence.FAILURE)
        assert value == plug_in_regret(length, error)
    assert np.all(high <= bound)
    assert np.all(mean <= known)
    assert np.all(np.diff(mean) < 0)
    assert mean[-1] < mean[0] / 30


def test_tracking_shows_what_forgetting_is_for(figures) -> None:
    above, below = figures["tracking"].axes
    decays = dict(
        zip(tracking.DECAYS, (line.get_ydata() for line in above.get_lines()), strict=True)
    )
    before = tracking.DRIFT_STARTS // tracking.EVERY - 1
    end = tracking.DRIFT_ENDS // tracking.EVERY - 1
    assert decays[1.0][before] < decays[0.9][before]
    assert decays[0.99][end] < decays[0.999][end] < decays[1.0][end]
    bound, measured, best = (line.get_ydata() for line in below.get_lines())
    errors = tracking.measure_error()
    assert np.all(measured <= errors.bound)
    assert bound.tolist() == errors.bound[errors.bound < 2.0].tolist() != []
    assert measured.tolist() == errors.measured.tolist()
    assert best[0] == best_decay(tracking.SUPPORT, errors.drift).error
    for decay, value in zip(tracking.SWEEP[:6], errors.bound, strict=False):
        steady = decayed_error(tracking.SUPPORT, float(decay), 10**6, errors.drift).total
        assert value == pytest.approx(steady)
