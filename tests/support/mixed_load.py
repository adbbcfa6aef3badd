"""A mixed load of requests that have something to lose, and their responses in a form that compares: for tests that end
or replace processes under it."""
import json
import threading

from pair import LIMIT

NUM_STREAMS = 32
WORDS = "the little fox ran over a green hill and said hello to his old friend bear".split()


class Answer:
    """One request's response, read in a thread of its own. Events of a stream are folded into what a plain response
    has; num_events counts them as they arrive."""

    def __init__(self, server, path, body):
        self.server, self.path, self.body = server, path, body
        self.num_events = 0
        self.has_enough = False
        self.result = None
        self.status = None
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        connection = self.server.connect()
        try:
            connection.request("POST", self.path, json.dumps(self.body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            self.status, self.headers = reply.status, reply.headers
            if reply.status != 200 or not self.body.get("stream"):
                self.result = fold([json.loads(reply.read())])
                return
            events = []
            for line in reply:
                if line.startswith(b"data: {"):
                    events.append(json.loads(line[6:]))
                    self.num_events += 1
                if self.has_enough:
                    break
            self.result = fold(events)
        except Exception as error:  # the assertion shows it
            self.result = repr(error)
        finally:
            connection.close()

    def wait(self):
        self.thread.join(LIMIT)
        assert not self.thread.is_alive(), "a response does not end"
        return self.result

    def leave(self):
        """Goes away after the next event; returns what has arrived."""
        self.has_enough = True
        return self.wait()

    def running(self):
        return self.thread.is_alive()


def fold(events):
    """Choices by index: text, token logprobs, finish; and the token counts of usage."""
    choices, usage, error = {}, None, None
    for event in events:
        error = event.get("error") or error
        usage = event.get("usage") or usage
        for choice in event.get("choices", ()):
            folded = choices.setdefault(choice["index"], {"text": "", "reasoning": "", "logprobs": [], "finish": None})
            message = choice.get("message") or choice.get("delta") or {}
            folded["text"] += choice.get("text") or message.get("content") or ""
            folded["reasoning"] += message.get("reasoning") or ""
            logprobs = choice.get("logprobs") or {}
            folded["logprobs"] += logprobs.get("content") or [
                list(row) for row in zip(logprobs.get("tokens", ()), logprobs.get("token_logprobs", ()),
                                         logprobs.get("top_logprobs") or [None] * len(logprobs.get("tokens", ())),
                                         logprobs.get("text_offset", ()))]
            if choice.get("prompt_logprobs"):
                folded["prompt_logprobs"] = choice["prompt_logprobs"]
            for call in message.get("tool_calls") or ():
                calls, function = folded.setdefault("calls", []), call["function"]
                if function.get("name"):
                    calls.append([function["name"], ""])
                calls[-1][1] += function.get("arguments") or ""
            if choice.get("finish_reason"):
                assert folded["finish"] is None, "two finish reasons"
                folded["finish"] = (choice["finish_reason"], choice.get("stop_reason"))
    tokens = usage and (usage["prompt_tokens"], usage["completion_tokens"])
    return {"choices": choices, "tokens": tokens, "error": error}


TOOL = {"type": "function", "function": {"name": "tell", "parameters": {
    "type": "object", "properties": {"what": {"type": "string", "maxLength": 40}, "to": {"enum": ["fox", "bear"]}},
    "required": ["what", "to"], "additionalProperties": False}}}
SCHEMA = {"type": "object", "required": ["names", "count"], "additionalProperties": False, "properties": {
    "names": {"type": "array", "minItems": 3, "maxItems": 5, "items": {"type": "string", "maxLength": 12}},
    "count": {"type": "integer"}}}


def draw_request(dice):
    """A (path, body) of one of the kinds that have something to lose."""
    prompt = " ".join(dice.choices(WORDS, k=dice.randint(1, 40)))
    seed = dice.randrange(1 << 40)
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    base = {"model": "m", "max_tokens": dice.randint(20, 120)}
    chat = {**base, "messages": [{"role": "user", "content": prompt}]}
    completion = {**base, "prompt": prompt}
    return dice.choice([
        ("/v1/completions", {**completion, **stream, "temperature": 0, "ignore_eos": True}),
        ("/v1/completions", {**completion, **stream, "temperature": 1, "seed": seed, "logprobs": 3, "ignore_eos": True}),
        ("/v1/completions", {**completion, "temperature": 1, "seed": seed, "n": 3, "logprobs": 2, "ignore_eos": True}),
        ("/v1/completions", {**completion, **stream, "temperature": 0.8, "seed": seed, "ignore_eos": True,
                             "stop": [" " + dice.choice(WORDS), "he ", "a\u00e9"]}),
        ("/v1/completions", {**completion, **stream, "temperature": 0, "presence_penalty": 0.7, "min_tokens": 15,
                             "frequency_penalty": 0.4, "repetition_penalty": 1.2}),
        ("/v1/completions", {**completion, "temperature": 0, "echo": True, "logprobs": 1, "prompt_logprobs": 1}),
        ("/v1/completions", {**completion, **stream, "prompt": [prompt, "Once"], "temperature": 0.5, "seed": seed}),
        ("/v1/chat/completions", {**chat, **stream, "temperature": 0}),
        ("/v1/chat/completions", {**chat, "temperature": 0.9, "top_p": 0.9, "top_k": 20, "seed": seed,
                                  "logprobs": True, "top_logprobs": 2}),
        ("/v1/chat/completions", {**chat, **stream, "temperature": 1, "seed": seed, "n": 2, "ignore_eos": True}),
        ("/v1/chat/completions", {**chat, **stream, "temperature": 1, "seed": seed, "logit_bias": {"17": -5, "30": 2},
                                  "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}),
        ("/v1/chat/completions", {**chat, **stream, "temperature": 1, "seed": seed, "logprobs": True,
                                  "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}}),
        ("/v1/chat/completions", {**chat, **(stream if dice.random() < 0.5 else {}), "temperature": 1, "seed": seed,
                                  "tools": [TOOL], "tool_choice": "required"}),
    ])


class Load:
    """NUM_STREAMS requests at any time; each ended one is replaced by a new one."""

    def __init__(self, server, dice, always_takes=False):
        self.server, self.dice, self.always_takes = server, dice, always_takes
        self.open, self.ended = [], []
        self.num_past_events = 0

    def top_up(self):
        for answer in [answer for answer in self.open if not answer.running()]:
            self.open.remove(answer)
            self.ended.append(answer)
            self.num_past_events += answer.num_events
        # Without an engine a new request is refused.
        if self.always_takes or self.server.ask("GET", "/health")[0] == 200:
            while len(self.open) < NUM_STREAMS:
                self.open.append(Answer(self.server, *draw_request(self.dice)))

    def num_events(self):
        self.top_up()
        return self.num_past_events + sum(answer.num_events for answer in self.open)

    def open_streams(self):
        """(answer, events so far) of those under way."""
        return [(answer, answer.num_events) for answer in self.open if answer.body.get("stream")]

    def finish(self):
        for answer in self.open:
            answer.wait()
        self.ended += self.open
        self.open = []
        return self.ended


def check_equal_to_undisturbed(test, server, answers):
    """Each response equals that of the same request now. As many at a time as under load: one by one they take longer."""
    for begin in range(0, len(answers), NUM_STREAMS):
        some = answers[begin:begin + NUM_STREAMS]
        again = [Answer(server, answer.path, answer.body) for answer in some]
        for answer, undisturbed in zip(some, again):
            expected = undisturbed.wait()
            test.assertEqual(undisturbed.status, 200, expected)
            test.assertEqual(answer.result, expected, answer.body)
            test.assertIsNone(expected["error"], answer.body)
