"""How a request is sampled: the fields of the API that shape its output, by vLLM's names."""
import dataclasses
from typing import Any, Dict, List, Optional, Union


@dataclasses.dataclass
class SamplingParams:
    """None leaves a value to the model's generation_config.json, else to the server."""

    n: int = 1
    max_tokens: Optional[int] = 16
    min_tokens: Optional[int] = None
    temperature: Optional[float] = None
    top_p: Optional[float] = None
    top_k: Optional[int] = None
    min_p: Optional[float] = None
    seed: Optional[int] = None
    presence_penalty: Optional[float] = None
    frequency_penalty: Optional[float] = None
    repetition_penalty: Optional[float] = None
    stop: Union[str, List[str], None] = None
    stop_token_ids: Optional[List[int]] = None
    ignore_eos: Optional[bool] = None
    skip_special_tokens: Optional[bool] = None
    structured_outputs: Optional[Dict[str, Any]] = None
    """One of json, regex, choice, grammar: see the API's structured_outputs."""
    extra: Dict[str, Any] = dataclasses.field(default_factory=dict)
    """Other fields of the API, as they are."""

    def to_body(self) -> Dict[str, Any]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "extra"}
        return {**{name: value for name, value in fields.items() if value is not None}, **self.extra}
