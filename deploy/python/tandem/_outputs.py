"""What a request gave. The names are vLLM's."""
import dataclasses
from typing import Any, Dict, List, Optional


@dataclasses.dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: List[int]
    finish_reason: Optional[str]
    """"stop", "length", or "tool_calls" of a chat."""
    stop_reason: Any = None
    message: Optional[Dict[str, Any]] = None
    """Of a chat: the whole message, with tool calls and reasoning."""


@dataclasses.dataclass
class RequestOutput:
    request_id: str
    prompt: Optional[str]
    """None for a chat and for a prompt of token ids."""
    prompt_token_ids: List[int]
    outputs: List[CompletionOutput]
    """One for each of SamplingParams.n."""
    num_cached_tokens: Optional[int] = None


def _of_choice(choice: Dict[str, Any]) -> CompletionOutput:
    message = choice.get("message")
    text = choice.get("text") if message is None else message.get("content")
    return CompletionOutput(choice["index"], text or "", choice.get("token_ids") or [], choice.get("finish_reason"),
                            choice.get("stop_reason"), message)


def of_reply(prompt: Optional[str], reply: Dict[str, Any]) -> RequestOutput:
    """A reply of /v1/completions with one prompt, or of /v1/chat/completions, to a request with return_token_ids."""
    choices = sorted(reply["choices"], key=lambda choice: choice["index"])
    ids = reply.get("prompt_token_ids")  # a completion has them at its choices
    if ids is None:
        ids = choices[0].get("prompt_token_ids") or []
    details = (reply.get("usage") or {}).get("prompt_tokens_details") or {}
    return RequestOutput(reply["id"], prompt, ids, [_of_choice(choice) for choice in choices], details.get("cached_tokens"))
