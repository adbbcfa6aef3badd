#!/usr/bin/env python3
"""Keeps of the full set of parser cases what parsers_test.cc reads: trim.py FULL_SET_FOLDER.

The full set has, beside each case's text and results, tokens and the recorded streams.
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
CASE_FIELDS = ["name", "text", "choice", "parallel", "kw", "include_reasoning", "finish", "prompt", "whole", "accept",
               "judge", "vllm_loses_text", "reasoning_parser", "tool_parser"]
HEAD_FIELDS = ["family", "tool_parser", "reasoning_parser", "tools"]

for kind in ["tool_parsers", "reasoning_parsers"]:
    target = HERE / kind
    target.mkdir(exist_ok=True)
    for path in sorted((pathlib.Path(sys.argv[1]) / kind).glob("*.json")):
        full = json.loads(path.read_text())
        if not all("text" in case for case in full.get("cases", [{}])):
            continue
        head = {key: full[key] for key in HEAD_FIELDS if key in full}
        cases = [{key: case[key] for key in CASE_FIELDS if key in case} for case in full["cases"]]
        lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
        text = '{"head": ' + json.dumps(head, ensure_ascii=False) + ', "cases": [\n' + lines + "\n]}\n"
        (target / path.name).write_text(text)
