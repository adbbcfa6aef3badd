"""Tandem from Python: an engine of one's own, without a network port.

    from tandem import LLM, SamplingParams

    with LLM("/path/to/hf-folder", max_model_len=4096) as llm:
        for output in llm.generate(["Once upon a time", "The sea"], SamplingParams(temperature=0, max_tokens=40)):
            print(output.outputs[0].text)
        print(llm.chat([{"role": "user", "content": "What is a prime?"}])[0].outputs[0].text)
"""
from ._llm import LLM
from ._outputs import CompletionOutput, RequestOutput
from ._sampling_params import SamplingParams
from ._server import TandemError

__all__ = ["LLM", "CompletionOutput", "RequestOutput", "SamplingParams", "TandemError"]
