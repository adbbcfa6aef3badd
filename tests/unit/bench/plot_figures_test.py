#!/usr/bin/env python3
"""The picture of the figures is that of their table."""
import pathlib
import sys
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/bench"))
import plot_figures

ROWS = "".join(f"| {name} | {i}.5 (1.25–{i}.75) | – |\n" for i, (name, _) in enumerate(plot_figures.LABELS, 2))
TEXT = "## Beside other servers\n\nWords.\n\n| | small | large |\n|---|---|---|\n" + ROWS


class PlotFigures(unittest.TestCase):
    def test_the_picture_in_the_tree_is_that_of_the_table(self):
        picture = plot_figures.draw(*plot_figures.read_ratios(plot_figures.TABLE.read_text()))
        self.assertEqual((ROOT / "docs/developer/figures.svg").read_text(), picture,
                         "run tests/bench/plot_figures.py > docs/developer/figures.svg")

    def test_a_bar_is_as_long_as_its_ratio(self):
        models, ratios = plot_figures.read_ratios(TEXT)
        self.assertEqual(models, ["small", "large"])
        self.assertEqual(ratios[plot_figures.LABELS[0][0]], [(2.5, 1.25, 2.75), None])
        picture = xml.etree.ElementTree.fromstring(plot_figures.draw(models, ratios))
        bars = [float(rect.get("width")) for rect in picture.iter("{http://www.w3.org/2000/svg}rect")][len(models):]
        self.assertEqual(len(bars), len(plot_figures.LABELS))
        self.assertAlmostEqual(bars[1] / bars[0], 3.5 / 2.5, places=2)

    def test_a_row_that_is_not_there_is_an_error(self):
        with self.assertRaises(KeyError):
            plot_figures.draw(*plot_figures.read_ratios(TEXT.replace("8 streams", "9 streams")))


if __name__ == "__main__":
    unittest.main()
