#!/usr/bin/env python3
"""Keeps of the full set of parser cases what the tests read: trim.py FULL_SET_FOLDER.

The full set has, beside each case's text and results, tokens and the recorded streams. Of the grammars of requests,
every way to build one stays, and each format's spellings.
"""
import gzip
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
        (target / f"{path.name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))

ALL_REQUESTS = ["hermes", "glm45", "pythonic", "mistral", "gemma4"]
SOME_REQUESTS = ["llama3_json", "longcat", "qwen3_coder", "deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseek_v4",
                 "kimi_k2", "minimax_m2"]
ONE_OF_EACH_SHAPE = ["auto_strict", "required_single", "named"]
HARMONY_REQUESTS = ["auto", "auto_strict", "named", "auto_json_schema", "no_tools_json_object"]


def keeps(case):
    if case["family"] in ALL_REQUESTS:
        return True
    if case["family"] in SOME_REQUESTS:
        return case["request"] in ONE_OF_EACH_SHAPE
    return case["family"] == "openai" and case["request"] in HARMONY_REQUESTS


full = json.loads((pathlib.Path(sys.argv[1]) / "tool_parsers" / "requests.json").read_text())
requests = ",\n".join(json.dumps({name: body})[1:-1] for name, body in full["requests"].items())
cases = ",\n".join(json.dumps(case, ensure_ascii=False) for case in full["cases"] if keeps(case))
text = '{"requests": {\n' + requests + '\n}, "cases": [\n' + cases + "\n]}\n"
(HERE / "tool_requests.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
