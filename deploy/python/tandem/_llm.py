"""A model to call from Python."""
import concurrent.futures
import json
import weakref
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Sequence, Type, TypeVar, Union

from ._outputs import RequestOutput, of_reply
from ._sampling_params import SamplingParams
from ._server import Server

Prompt = Union[str, List[int]]
Messages = List[Dict[str, Any]]
_NUM_CONNECTIONS = 256  # requests under way at once; the engine batches what it can of them
_SERVED_NAME = "model"
_Result = TypeVar("_Result")


def _flag(name: str, value: Any) -> List[str]:
    """max_model_len=4096 as `tandem serve` reads it."""
    dashed = "--" + name.replace("_", "-")
    if value is None:
        return []
    if isinstance(value, bool):
        return [dashed if value else "--no-" + dashed[2:]]
    if isinstance(value, dict):
        return [f"{dashed}={json.dumps(value)}"]
    if isinstance(value, (list, tuple)):
        return [dashed, *map(str, value)]
    return [f"{dashed}={value}"]


class LLM:
    """An engine for this process alone. model: a folder, a .gguf file or a name on a hub; flags are those of `tandem serve`,
    with "_" for "-". Use it as a context manager, or close() it; it also ends with the process. Any thread.

    Raises TandemError where the server cannot start, or a request is refused; then the other requests of that call are
    not waited for."""

    def __init__(self, model: str, *, ready_timeout_s: float = 600, **flags: Any) -> None:
        arguments = [model, "--served-model-name", _SERVED_NAME, "--enable-prompt-tokens-details"]
        for name, value in flags.items():
            arguments += _flag(name, value)
        self._server = Server(arguments, ready_timeout_s)
        self._finalizer = weakref.finalize(self, self._server.close)

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]],
                 sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None) -> List[RequestOutput]:
        """One output per prompt, in their order. A prompt is a text or a list of token ids; sampling_params are for all
        or one for each."""
        many = [prompts] if isinstance(prompts, str) or _is_token_ids(prompts) else list(prompts)

        def ask(prompt: Any, body: Dict[str, Any]) -> RequestOutput:
            reply = self._server.post("/v1/completions", {**body, "prompt": prompt})
            return of_reply(prompt if isinstance(prompt, str) else None, reply)
        return self._ask_all(many, sampling_params, ask)

    def chat(self, messages: Union[Messages, Sequence[Messages]],
             sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
             *, tools: Optional[List[Dict[str, Any]]] = None,
             chat_template_kwargs: Optional[Dict[str, Any]] = None) -> List[RequestOutput]:
        """One output per conversation: messages are one, or a list of them."""
        many: List[Any] = [messages] if messages and isinstance(messages[0], dict) else list(messages)
        more: Dict[str, Any] = {}
        if tools is not None:
            more["tools"] = tools
        if chat_template_kwargs is not None:
            more["chat_template_kwargs"] = chat_template_kwargs

        def ask(conversation: Any, body: Dict[str, Any]) -> RequestOutput:
            return of_reply(None, self._server.post("/v1/chat/completions", {**body, **more, "messages": conversation}))
        return self._ask_all(many, sampling_params, ask)

    def embed(self, inputs: Union[Prompt, Sequence[Prompt]], *, dimensions: Optional[int] = None,
              truncate_prompt_tokens: Optional[int] = None) -> List[List[float]]:
        """The vector of each input, a text or a list of token ids, by a model that makes vectors."""
        many = [inputs] if isinstance(inputs, str) or _is_token_ids(inputs) else list(inputs)
        more = {"dimensions": dimensions, "truncate_prompt_tokens": truncate_prompt_tokens}
        body = {"model": _SERVED_NAME, **{name: value for name, value in more.items() if value is not None}}

        def ask(one: Any) -> List[float]:
            vector: List[float] = self._server.post("/v1/embeddings", {**body, "input": one})["data"][0]["embedding"]
            return vector
        return _all_of(many, ask)

    def score(self, query: str, documents: Sequence[str]) -> List[float]:
        """How well each document answers the query, by a reranker, or by the cosine of an embedder's vectors."""
        reply = self._server.post("/v1/score", {"model": _SERVED_NAME, "queries": query, "documents": list(documents)})
        return [item["score"] for item in reply["data"]]

    def close(self) -> None:
        self._finalizer()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    @staticmethod
    def _ask_all(inputs: List[Any], params: Union[SamplingParams, Sequence[SamplingParams], None],
                 ask: Callable[[Any, Dict[str, Any]], RequestOutput]) -> List[RequestOutput]:
        if params is None:
            params = SamplingParams()
        each = [params] * len(inputs) if isinstance(params, SamplingParams) else list(params)
        if len(each) != len(inputs):
            raise ValueError(f"{len(each)} sampling_params for {len(inputs)} inputs")
        bodies = [{**one.to_body(), "model": _SERVED_NAME, "return_token_ids": True} for one in each]
        return _all_of(list(zip(inputs, bodies)), lambda each: ask(*each))


def _all_of(inputs: List[Any], ask: Callable[[Any], _Result]) -> List[_Result]:
    """What ask returns for each, many at a time."""
    if not inputs:
        return []
    with concurrent.futures.ThreadPoolExecutor(min(len(inputs), _NUM_CONNECTIONS)) as pool:
        waiting = [pool.submit(ask, one) for one in inputs]
        try:
            return [future.result() for future in waiting]
        except BaseException:
            for future in waiting:
                future.cancel()
            raise


def _is_token_ids(prompts: Any) -> bool:
    return isinstance(prompts, list) and bool(prompts) and all(isinstance(each, int) for each in prompts)
