#!/usr/bin/env python3
"""Rendering without running: a request through render, /inference/v1/generate and derender is the same as the request
itself. Templates in requests, and /tokenizer_info."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from scripted import ANSWER, Frontend, Scripted, call

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
CHAT = {"messages": [{"role": "user", "content": "Weather in Oslo?"}]}


class Rendering(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Scripted("--max-logprobs", "5")

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def ask(self, path, body, status=200):
        got, text = self.server.post(path, body)
        self.assertEqual(got, status, text)
        return json.loads(text)

    @staticmethod
    def without_ids(response):
        for key in ("id", "created", "system_fingerprint", "metrics"):
            response.pop(key)
        for choice in response["choices"]:
            for each in choice.get("message", {}).get("tool_calls") or []:
                each.pop("id")
            for entry in (choice["logprobs"] or {}).get("content", []):
                entry["logprob"] = round(entry["logprob"], 4)
                for other in entry["top_logprobs"]:
                    other["logprob"] = round(other["logprob"], 4)
        return response

    def chat_in_pieces(self, body, reply):
        rendered = self.ask("/v1/chat/completions/render", body)
        self.server.reply(*reply)
        generated = self.ask("/inference/v1/generate", rendered)
        return rendered, self.ask("/v1/chat/completions/derender", {
            "generate_response": generated, "chat_request": body, "prompt_tokens": len(rendered["token_ids"]),
            "prompt_token_ids": rendered["token_ids"]})

    def test_a_chat_in_three_steps_is_the_chat(self):
        text = "<think>Look.</think>One moment. " + call("get_weather", city="Oslo") + "<|im_end|>"
        for fields, replies in (({}, [text]), ({"tools": [WEATHER]}, [text]), ({"stop": ["mom"]}, [text]),
                                ({"stop": ["mom"], "include_stop_str_in_output": True}, [text]),
                                ({"max_completion_tokens": 5}, [text]), ({"include_reasoning": False}, [text]),
                                ({"n": 2, "temperature": 0.5, "seed": 3}, [text, ANSWER + "Rain."])):
            with self.subTest(fields):
                body = {**CHAT, **fields}
                self.server.reply(*replies)
                whole = self.ask("/v1/chat/completions", body)
                rendered, pieces = self.chat_in_pieces(body, replies)
                self.assertEqual(len(rendered["token_ids"]), whole["usage"]["prompt_tokens"])
                self.assertEqual(pieces["id"], rendered["request_id"])
                for response in (whole, pieces):
                    for key in ("completion_tokens_details", "prompt_tokens_details"):
                        response["usage"].pop(key)
                self.assertEqual(self.without_ids(pieces), self.without_ids(whole))

    def test_a_format_is_rendered(self):
        for fields in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"choice": ["a", "b"]}}):
            rendered = self.ask("/v1/chat/completions/render", {**CHAT, **fields})
            self.assertIn("structured_outputs", rendered["sampling_params"])

    def test_generate_goes_as_far_as_it_is_asked_to(self):
        text = "<think>Look.</think>One moment. " + call("get_weather", city="Oslo") + "<|im_end|>"
        for fields in ({}, {"tools": [WEATHER]}, {"stop": ["mom"]}, {"tools": [WEATHER], "tool_choice": "none"},
                       {"include_reasoning": False}, {"max_completion_tokens": 5, "logprobs": True, "seed": 1},
                       {"max_completion_tokens": 5, "logprobs": True, "top_logprobs": 2, "seed": 1}):
            with self.subTest(fields):
                body = {**CHAT, **fields}
                self.server.reply(text)
                [whole] = self.without_ids(self.ask("/v1/chat/completions", body))["choices"]
                rendered = self.ask("/v1/chat/completions/render", body)
                self.server.reply(text)
                response = self.ask("/inference/v1/generate", {**rendered, "output_mode": "derender", "return_token_ids": True})
                self.assertEqual(response["output_mode"], "derender")
                self.assertEqual(response["prompt_token_ids"], rendered["token_ids"])
                self.assertEqual(response["usage"]["prompt_tokens"], len(rendered["token_ids"]))
                [choice] = self.without_ids({**response, "id": 0, "system_fingerprint": 0})["choices"]
                for key in ("message", "finish_reason", "stop_reason", "logprobs"):
                    self.assertEqual(choice[key], whole[key], key)
                self.assertEqual(choice["token_ids"] is None, not body.get("include_reasoning", True))

                self.server.reply(text)
                plain = self.ask("/inference/v1/generate", {**rendered, "output_mode": "text"})
                if "tools" not in body:
                    shown = "".join(whole["message"][key] or "" for key in ("reasoning", "content"))
                    self.assertIn(shown[-4:], plain["choices"][0]["text"])
                self.server.reply(text)
                events = self.events("/inference/v1/generate", {**rendered, "output_mode": "text"})
                self.assertEqual("".join(choice["text"] for event in events for choice in event["choices"]),
                                 plain["choices"][0]["text"])
        rendered = self.ask("/v1/chat/completions/render", CHAT)
        for wrong in ({"output_mode": "words"}, {"output_mode": "derender", "stream": True},
                      {"output_mode": "derender", "parse_context": None},
                      {"output_mode": "derender", "parse_context": {"newer": 1}}):
            self.ask("/inference/v1/generate", {**rendered, **wrong}, status=400)

    def test_the_engine_is_asked_for_the_same(self):
        """Whether a chat comes in one step or in two: all but its ids and times."""
        def engine_request():
            request = self.server.received(0)[-1]
            return [request[i] for i in range(len(request)) if i not in (0, 5, 11, 12, 16)]
        for fields in ({"thinking_token_budget": 7}, {"watermarking": False, "routed_experts_prompt_start": 2},
                       {"vllm_xargs": {"a": 1}, "kv_transfer_params": {"b": 2}, "ec_transfer_params": {"c": 3}},
                       {"kv_transfer_params": {"prompt_token_ids": [5, 6], "b": 2}},
                       {"session_id": "s", "priority": 3, "cache_salt": "salt", "chat_template_kwargs": {"enable_thinking": True}},
                       {"logit_bias": {"5": 2}, "allowed_token_ids": [5, 6], "bad_words": ["x"], "stop": ["y"], "min_tokens": 2},
                       {"logprobs": True, "top_logprobs": 2, "prompt_logprobs": 1, "seed": 4, "top_p": 0.5, "top_k": 3, "min_p": 0.1},
                       {"response_format": {"type": "json_object"}}, {"tools": [WEATHER], "tool_choice": "required"},
                       {"repetition_detection": {"max_pattern_size": 3, "min_count": 4}, "ignore_eos": True, "stop_token_ids": [9]}):
            with self.subTest(fields):
                body = {**CHAT, "max_completion_tokens": 5, **fields}
                self.server.reply("Rain.")
                self.ask("/v1/chat/completions", body)
                whole = engine_request()
                rendered = self.ask("/v1/chat/completions/render", body)
                self.server.reply("Rain.")
                self.ask("/inference/v1/generate", rendered)
                self.assertEqual(engine_request(), whole)

    def test_render_finds_whether_a_format_waits_for_the_reasoning(self):
        # The end of the reasoning is no single token of this model, so the engine could overlook it.
        body = {**CHAT, "response_format": {"type": "json_object"}}
        rendered = self.ask("/v1/chat/completions/render", body)
        self.assertIs(rendered["reasoning_ended"], True)
        self.assertEqual(rendered["parse_context"]["tool_choice"], "none")
        self.assertIsNone(self.ask("/v1/chat/completions/render", CHAT)["reasoning_ended"])

    def test_tokens_have_logprobs_by_their_ids(self):
        self.server.reply("Rain.")
        rendered = self.ask("/v1/completions/render", {"prompt": "Weather:", "logprobs": 2, "max_tokens": 3})[0]
        response = self.ask("/inference/v1/generate", rendered)
        for token, entry in zip(response["choices"][0]["token_ids"], response["choices"][0]["logprobs"]["content"]):
            self.assertEqual(sorted(entry), ["logprob", "rank", "token_id", "top_logprobs"])
            self.assertEqual((entry["token_id"], entry["top_logprobs"][0]["token_id"]), (token, token))

    def test_logprobs_get_the_texts_that_the_chat_gives_them(self):
        for fields in ({}, {"skip_special_tokens": False}, {"return_tokens_as_token_ids": True}):
            with self.subTest(fields):
                body = {**CHAT, "logprobs": True, "top_logprobs": 2, "seed": 1, **fields}
                self.server.reply(ANSWER + "Rain.<|im_end|>")
                whole = self.ask("/v1/chat/completions", body)
                _, pieces = self.chat_in_pieces(body, [ANSWER + "Rain.<|im_end|>"])
                self.assertEqual([entry["token"] for entry in pieces["choices"][0]["logprobs"]["content"]],
                                 [entry["token"] for entry in whole["choices"][0]["logprobs"]["content"]])

    def test_a_prompt_is_counted_by_its_tokens(self):
        rendered = self.ask("/v1/completions/render", {"prompt": "Once upon", "max_tokens": 2})[0]
        self.server.reply(" a time")
        generated = self.ask("/inference/v1/generate", rendered)
        ids = rendered["token_ids"]
        for path, body, seven in (("/v1/chat/completions/derender", {"generate_response": generated, "prompt_token_ids": ids}, 7),
                                  ("/v1/completions/derender", {"generate_responses": [generated], "prompt_token_ids": [ids]}, [7])):
            self.assertEqual(self.ask(path, body)["usage"]["prompt_tokens"], len(ids))
            self.assertEqual(self.ask(path, {**body, "prompt_tokens": seven})["usage"]["prompt_tokens"], 7)

    def test_choices_of_a_stream_stay_apart(self):
        body = {**CHAT, "n": 2, "temperature": 0.5, "seed": 3}
        rendered = self.ask("/v1/chat/completions/render", body)
        self.server.reply(ANSWER + "Rain.", ANSWER + "Sun.")
        states, texts = {}, {}
        for event in self.events("/inference/v1/generate", rendered):
            for choice in event["choices"]:
                index = choice["index"]
                answer = self.ask("/v1/chat/completions/derender", {
                    "stream": True, "generate_chunk": event, "stream_state": states.get(index), "chat_request": body,
                    "prompt_token_ids": rendered["token_ids"]})
                states[index] = answer["stream_state"]
                for written in answer["chunk"]["choices"]:
                    texts[written["index"]] = texts.get(written["index"], "") + (written["delta"].get("content") or "")
        self.assertEqual(sorted(texts.items()), [(0, "Rain."), (1, "Sun.")])

    def test_logprobs_get_their_texts(self):
        body = {**CHAT, "logprobs": True, "top_logprobs": 2, "max_completion_tokens": 4, "seed": 1}
        _, pieces = self.chat_in_pieces(body, [ANSWER + "Rain in Oslo."])
        content = pieces["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), 4)
        self.assertNotIn("token_id:", json.dumps(content))
        self.assertEqual(len(content[0]["top_logprobs"]), 2)

    def events(self, path, body):
        status, text = self.server.post(path, {**body, "stream": True})
        self.assertEqual(status, 200, text)
        return [json.loads(line[6:]) for line in text.decode().split("\n\n") if line.startswith("data: {")]

    @staticmethod
    def added_up(events):
        """The parts of a chat's message, and why it ended."""
        parts, reasons = {"role": "", "content": "", "reasoning": "", "calls": ""}, []
        for event in events:
            for choice in event["choices"]:
                for key in ("role", "content", "reasoning"):
                    parts[key] += choice["delta"].get(key) or ""
                for tool_call in choice["delta"].get("tool_calls") or []:
                    parts["calls"] += tool_call["function"].get("name", "") + tool_call["function"]["arguments"]
                reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
        return parts, reasons

    def test_a_stream_in_three_steps_is_the_stream(self):
        text = "<think>Look.</think>One moment. " + call("get_weather", city="Oslo") + "<|im_end|>"
        for fields in ({}, {"tools": [WEATHER]}, {"stop": ["mom"]}, {"max_completion_tokens": 5}):
            with self.subTest(fields):
                body = {**CHAT, **fields}
                self.server.reply(text)
                whole = self.events("/v1/chat/completions", body)
                rendered = self.ask("/v1/chat/completions/render", body)
                self.server.reply(text)
                state, pieces = None, []
                for event in self.events("/inference/v1/generate", rendered):
                    answer = self.ask("/v1/chat/completions/derender", {
                        "stream": True, "generate_chunk": event, "stream_state": state, "chat_request": body,
                        "prompt_token_ids": rendered["token_ids"]})
                    state = answer["stream_state"]
                    pieces.append(answer["chunk"])
                self.assertEqual(self.added_up(pieces), self.added_up(whole))
                self.assertEqual({piece["id"] for piece in pieces}, {rendered["request_id"]})

    def test_a_stream_of_a_completion_in_three_steps(self):
        body = {"prompt": "Once upon", "max_tokens": 6, "temperature": 0}
        rendered = self.ask("/v1/completions/render", body)[0]
        self.server.reply(" a time")
        state, text = None, ""
        for event in self.events("/inference/v1/generate", rendered):
            answer = self.ask("/v1/completions/derender", {
                "stream": True, "generate_chunk": event, "stream_state": state, "completion_request": body})
            state = answer["stream_state"]
            text += "".join(choice["text"] for choice in answer["chunk"]["choices"])
        self.assertEqual(text, " a time")

    def test_a_stream_of_a_completion_goes_on_where_its_last_event_ended(self):
        for fields in ({"logprobs": 1}, {"echo": True}):
            with self.subTest(fields):
                body = {"prompt": "Once upon", "max_tokens": 3, "temperature": 0, **fields}
                self.server.reply(" a time")
                whole = self.events("/v1/completions", body)
                rendered = self.ask("/v1/completions/render", body)[0]
                self.server.reply(" a time")
                state, pieces = None, []
                for event in self.events("/inference/v1/generate", rendered):
                    answer = self.ask("/v1/completions/derender", {
                        "stream": True, "generate_chunk": event, "stream_state": state, "completion_request": body})
                    state = answer["stream_state"]
                    pieces.append(answer["chunk"])
                self.assertGreater(len(pieces), 1)
                self.assertEqual(self.texts_and_places(pieces), self.texts_and_places(whole))

    @staticmethod
    def texts_and_places(events):
        choices = [choice for event in events for choice in event["choices"]]
        return ("".join(choice["text"] for choice in choices),
                [place for choice in choices for place in (choice["logprobs"] or {}).get("text_offset", [])])

    def test_wrong_events_of_a_completion_are_refused(self):
        body = {"prompt": "Once upon", "max_tokens": 6, "temperature": 0}
        for wrong in ({"stream": True}, {"stream": True, "generate_chunk": {"choices": [{}, {}]}},
                      {"stream": True, "generate_chunk": {"choices": []}, "stream_state": {"prior_token_ids": [-1]}}):
            self.ask("/v1/completions/derender", {**wrong, "completion_request": body}, status=400)

    def test_without_the_request_all_text_is_content(self):
        generated = {"request_id": "r", "choices": [
            {"index": 0, "finish_reason": "length", "token_ids": self.tokens("<think>Look.</think>Rain.")}]}
        response = self.ask("/v1/chat/completions/derender", {"generate_response": generated})
        self.assertEqual(response["choices"][0]["message"]["content"], "<think>Look.</think>Rain.")
        self.assertEqual(response["choices"][0]["finish_reason"], "length")
        self.assertEqual(response["id"], "r")

    def test_a_text_goes_on_from_its_prompt(self):
        ids = self.tokens("\U0001F600")
        self.assertGreater(len(ids), 1)
        choice = {"index": 0, "finish_reason": "length", "token_ids": ids[1:]}
        for path, field, wrap in (("/v1/chat/completions/derender", "generate_response", lambda one: one),
                                  ("/v1/completions/derender", "generate_responses", lambda one: [one])):
            def text(generated, **fields):
                [found] = self.ask(path, {field: wrap(generated), **fields})["choices"]
                return found["message"]["content"] if "message" in found else found["text"]
            self.assertEqual(text({"choices": [choice]}, prompt_token_ids=wrap(ids[:1])), "\U0001F600")
            self.assertEqual(text({"choices": [choice], "prompt_token_ids": ids[:1]}), "\U0001F600")
            self.assertIn("\ufffd", text({"choices": [choice]}))

    def tokens(self, text):
        return self.ask("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]

    def test_prompts_of_a_completion_are_bodies_of_their_own(self):
        body = {"prompt": ["Once upon", "There was"], "max_tokens": 6, "temperature": 0}
        self.server.reply(" a time", " a fox")
        whole = self.ask("/v1/completions", body)
        rendered = self.ask("/v1/completions/render", body)
        self.assertEqual([each["token_ids"] for each in rendered], [self.tokens("Once upon"), self.tokens("There was")])
        self.server.reply(" a time", " a fox")
        generated = [self.ask("/inference/v1/generate", each) for each in rendered]
        pieces = self.ask("/v1/completions/derender", {
            "generate_responses": generated, "completion_request": body,
            "prompt_tokens": [len(each["token_ids"]) for each in rendered]})
        self.assertEqual([choice["text"] for choice in pieces["choices"]], [choice["text"] for choice in whole["choices"]])
        self.assertEqual(pieces["usage"]["total_tokens"], whole["usage"]["total_tokens"])

    def test_offsets_of_tokens_when_they_are_asked_for(self):
        text = "Once upon a \u00e9"
        rendered = self.ask("/v1/completions/render", {"prompt": text, "return_token_offsets": True})[0]
        offsets = rendered["token_offsets"]
        self.assertEqual(len(offsets), len(rendered["token_ids"]))
        self.assertEqual((offsets[0][0], offsets[-1][1]), (0, len(text)))
        chat = self.ask("/v1/chat/completions/render", {**CHAT, "return_token_offsets": True})
        self.assertEqual(len(chat["token_offsets"]), len(chat["token_ids"]))
        self.assertIsNone(self.ask("/v1/completions/render", {"prompt": text})[0]["token_offsets"])

    def test_other_apis_render_as_the_chat_that_they_are(self):
        chat = self.ask("/v1/chat/completions/render", {**CHAT, "max_completion_tokens": 7})
        text = CHAT["messages"][0]["content"]
        for path, body in (("/v1/responses/render", {"input": text, "max_output_tokens": 7}),
                           ("/v1/messages/render", {**CHAT, "max_tokens": 7})):
            rendered = self.ask(path, body)
            self.assertEqual(rendered["token_ids"], chat["token_ids"])
            self.assertEqual(rendered["sampling_params"], chat["sampling_params"])
        self.assertEqual(self.ask("/v1/messages/render", CHAT, 400)["type"], "error")

    def test_bad_bodies_are_refused(self):
        choice = {"index": 0, "token_ids": [1]}
        for body, param in (({}, "body.generate_response"), ({"generate_response": {"choices": []}}, "body.generate_response"),
                            ({"generate_response": {"choices": [{"token_ids": [10**6]}]}}, "generate_response"),
                            ({"generate_response": {"choices": [{"token_ids": "x"}]}}, "body.generate_response"),
                            ({"generate_response": {"choices": [choice]}, "stream": True}, "body.generate_chunk"),
                            ({"generate_response": {"choices": [choice]}, "chat_request": {}}, "body.messages"),
                            ({"generate_response": {"choices": [choice]}, "model": "other"}, "model"),
                            ({"generate_response": {"choices": [{**choice, "logprobs": {"content": [{"token": "x"}]}}]}},
                             "generate_response")):
            with self.subTest(body):
                error = self.ask("/v1/chat/completions/derender", body, 404 if param == "model" else 400)["error"]
                self.assertEqual(error["param"], param)
        one = {"choices": [choice]}
        for body, param in (({}, "body.generate_responses"), ({"generate_responses": []}, "body.generate_responses"),
                            ({"generate_responses": [one], "prompt_tokens": [1, 2]}, "prompt_tokens"),
                            ({"generate_responses": [one], "prompt_token_ids": [[1], None]}, "prompt_token_ids"),
                            ({"generate_responses": [one], "prompt_token_ids": [["x"]]}, "body.prompt_token_ids"),
                            ({"generate_responses": [{**one, "output_mode": "text"}]}, "body.generate_responses"),
                            ({"generate_responses": [one, one], "completion_request": {"prompt": "x"}}, "generate_responses")):
            with self.subTest(body):
                self.assertEqual(self.ask("/v1/completions/derender", body, 400)["error"]["param"], param)
        self.assertEqual(self.ask("/v1/chat/completions/render", {"messages": []}, 400)["error"]["param"], "messages")

    def test_a_template_in_the_request_needs_the_flag(self):
        for body in ({**CHAT, "chat_template": "x"}, {**CHAT, "chat_template_kwargs": {"chat_template": "x"}}):
            error = self.ask("/v1/chat/completions", body, 400)["error"]
            self.assertEqual(error["param"], "chat_template")
            self.assertIn("--trust-request-chat-template", error["message"])


class Trusting(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Frontend("--trust-request-chat-template", "--enable-tokenizer-info-endpoint")

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def prompt(self, body):
        status, text = self.server.post("/v1/chat/completions/render", body)
        self.assertEqual(status, 200, text)
        return json.loads(self.server.post("/detokenize", {"tokens": json.loads(text)["token_ids"]})[1])["prompt"]

    def test_the_requests_template_is_used(self):
        template = "{% for m in messages %}[{{ m.content }}]{% endfor %}{{ greeting }}"
        for body in ({**CHAT, "chat_template": template, "chat_template_kwargs": {"greeting": "hi"}},
                     {**CHAT, "chat_template_kwargs": {"chat_template": template, "greeting": "hi"}}):
            self.assertEqual(self.prompt(body), "[Weather in Oslo?]hi")
        self.assertIn("<|im_start|>", self.prompt(CHAT))

    def test_a_template_that_is_wrong_is_the_requests_error(self):
        for template, words in (("{% if %}", "line 1"), ("{{ raise_exception('no') }}", "no"), ("{% for i in range(10**9) %}{% endfor %}", "")):
            status, text = self.server.post("/v1/chat/completions", {**CHAT, "chat_template": template})
            self.assertEqual(status, 400, text)
            self.assertIn(words, json.loads(text)["error"]["message"])

    def test_tokenizer_info(self):
        status, text = self.server.get("/tokenizer_info")
        self.assertEqual(status, 200)
        info = json.loads(text)
        self.assertIn("tokenizer_class", info)
        self.assertIn("im_start", info["chat_template"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
