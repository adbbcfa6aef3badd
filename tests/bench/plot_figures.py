#!/usr/bin/env python3
"""Draws the first table of docs/developer/figures.md, ratios to other servers, as bars.

  tests/bench/plot_figures.py > docs/developer/figures.svg

A test holds the picture to the table.
"""
import argparse
import html
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs/developer/figures.md"
LABELS = [("prompt of 512 tokens, bf16, to llama.cpp bf16", "a prompt of 512 tokens, to llama.cpp"),
          ("the same, to vLLM", "the same, to vLLM"),
          ("1 stream, 128 in / 64 out, bf16, time per token, to llama.cpp bf16", "1 stream, to llama.cpp"),
          ("8 streams, bf16, tokens/s, to llama.cpp bf16", "8 streams, to llama.cpp"),
          ("8 streams, bf16, tokens/s, to vLLM", "8 streams, to vLLM"),
          ("8 streams, int8, to llama.cpp Q8_0", "8 streams in int8, to llama.cpp Q8_0"),
          ("8 streams, int4, to llama.cpp Q4_0", "8 streams in int4, to llama.cpp Q4_0"),
          ("32 streams, bf16, to llama.cpp bf16", "32 streams, to llama.cpp"),
          ("32 streams, bf16, to vLLM", "32 streams, to vLLM")]
LEFT, RIGHT, WIDTH, BAR, GAP, TOP = 270, 40, 760, 12, 12, 44
COLOURS = ["#4c8dd6", "#e0912f", "#4fa66a"]


def read_ratios(text):
    """(models, {label: [(median, p10, p90) of each model]})"""
    lines = text.split("## Beside other servers", 1)[1].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    models, ratios = rows[0][1:], {}
    for row in rows[2:]:
        cells = [re.match(r"([\d.]+) \(([\d.]+)–([\d.]+)\)", cell) for cell in row[1:]]
        ratios[row[0]] = [tuple(map(float, cell.groups())) if cell else None for cell in cells]
    return models, ratios


def text_at(x, y, text, anchor="start", css=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" class="{css}">{html.escape(text)}</text>'


def draw(models, ratios):
    most = max(cell[2] for name, _ in LABELS for cell in ratios[name] if cell)
    scale = (WIDTH - LEFT - RIGHT) / most
    group = len(models) * BAR + GAP
    height = TOP + len(LABELS) * group + 26
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
           'font-family="sans-serif" font-size="12" role="img" aria-label="Tokens per second, as ratios to other servers">',
           "<style>text{fill:#24292f}.small{font-size:10px}.line{stroke:#8c959f}"
           "@media(prefers-color-scheme:dark){text{fill:#d0d7de}.line{stroke:#6e7681}}</style>"]
    for i, model in enumerate(models):
        x = LEFT + 80 * i
        out += [f'<rect x="{x}" y="12" width="10" height="10" fill="{COLOURS[i]}"/>', text_at(x + 15, 21, model)]
    for tick in range(int(most) + 1):
        x = LEFT + tick * scale
        style = "" if tick == 1 else ' stroke-dasharray="1 4"'
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 24}" class="line"{style}/>')
        out.append(text_at(x, height - 10, f"{tick}×", "middle", "small"))
    for number, (name, label) in enumerate(LABELS):
        y = TOP + number * group
        out.append(text_at(LEFT - 10, y + len(models) * BAR / 2 + 4, label, "end"))
        for i, cell in enumerate(ratios[name]):
            if cell is None:
                continue
            median, low, high = (value * scale for value in cell)
            middle = y + i * BAR + (BAR - 1) / 2
            out.append(f'<rect x="{LEFT}" y="{y + i * BAR}" width="{median:.1f}" height="{BAR - 1}" fill="{COLOURS[i]}"/>')
            out.append(f'<line x1="{LEFT + low:.1f}" x2="{LEFT + high:.1f}" y1="{middle:.1f}" y2="{middle:.1f}" class="line"/>')
            out.append(text_at(LEFT + max(median, high) + 4, middle + 3.5, f"{cell[0]:.2f}", css="small"))
    return "\n".join(out + ["</svg>"]) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    sys.stdout.write(draw(*read_ratios(TABLE.read_text())))
