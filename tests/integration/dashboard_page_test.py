#!/usr/bin/env python3
"""/dashboard in a real browser, over a server that works. TANDEM_SCREENSHOTS=FOLDER keeps pictures of it."""
import contextlib
import json
import os
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import browser
import pair
from browser import Browser
from pair import Pair, wait_for

SCREENSHOTS = os.environ.get("TANDEM_SCREENSHOTS")
KEY = "k3y"
LONG_NAME = "some-organisation/some-model-with-a-name-that-is-wider-than-a-telephone-instruct"
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}
HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Pair("--served-model-name", "m", LONG_NAME, "--enable-dashboard", "--api-key", KEY, "--api-server-count", 2,
                          "--max-num-seqs", 4, "--server-dev-mode")
        cls.browser = Browser()
        cls.browser.open(cls.server.url + "/dashboard")

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.__exit__(False)

    def rows(self):
        return self.browser.run(
            "return [...document.querySelectorAll('#requests tr')].map(row => [...row.cells].map(cell => cell.innerText))")

    def state(self):
        return json.loads(self.server.get("/dashboard/state", **HEADERS)[1])

    @contextlib.contextmanager
    def paused_streams(self, decoding, waiting, **headers):
        """Requests that stay as they are meanwhile: so many decode, so many wait for a place in the batch."""
        opened = []
        for i in range(decoding + waiting):
            connection = self.server.connect()
            body = {"model": "m", "prompt": f"Tale number {i}", "max_tokens": 1500, "ignore_eos": True, "stream": True}
            connection.request("POST", "/v1/completions", json.dumps(body), {**HEADERS, **headers})
            opened.append(connection)

        def phases():
            found = [request["phase"] for request in self.state()["requests"]]
            return found.count("decoding") == decoding and found.count("waiting") == waiting
        wait_for(phases, "the requests decode or wait")
        self.assertEqual(self.server.post("/pause?mode=keep", {}, **HEADERS)[0], 200)
        try:
            yield
        finally:
            self.assertEqual(self.server.post("/resume", {}, **HEADERS)[0], 200)
            for connection in opened:
                connection.close()
        wait_for(lambda: self.state()["num_requests"] == 0, "no live request")

    def picture(self, name, of=None):
        if SCREENSHOTS:
            (of or self.browser).picture(pathlib.Path(SCREENSHOTS) / f"{name}.png")

    def test_1_needs_the_key_and_then_shows_what_the_server_does(self):
        wait_for(lambda: "API key" in self.browser.text("#problem"), "the page asks for the key")
        self.assertEqual(self.server.get("/dashboard/state")[0], 401)
        self.assertEqual(self.server.get("/dashboard")[0], 200)
        self.browser.type("#key", KEY)
        self.browser.click("#key-row button")
        wait_for(lambda: self.browser.text("#model") == "m", "the model's name")
        self.assertEqual(self.browser.text("#problem"), "")
        self.assertIn("1 of 1 engines ready", self.browser.text("#facts"))
        with self.paused_streams(decoding=4, waiting=2):
            wait_for(lambda: [row[1] for row in self.rows()].count("decoding") == 4, "a row for each live request")
            waiting = [row for row in self.rows() if row[1] == "waiting"]
            self.assertEqual([row[3] for row in waiting], ["–", "–"])
            for row in self.rows():
                self.assertRegex(row[5], r"of 1500$")
            wait_for(lambda: "6 waiting" in self.browser.text("#tiles"), "the tile: a paused engine runs nothing")
            wait_for(lambda: "p99 –" not in self.browser.text("#tiles"), "percentiles")
            self.picture("dashboard-light")
        wait_for(lambda: not self.rows(), "no row")

    def test_2_the_picture_of_blocks_has_a_share_of_its_cells_in_use(self):
        for usage, cells in ((0, 0), (0.001, 1), (0.5, 100), (1, 200)):
            found = self.browser.run(
                "return engineCard({kv_cache_usage: arguments[0], status: 'ready'}).querySelectorAll('i.used').length", usage)
            self.assertEqual(found, cells)

    def test_3_the_playground_streams_and_has_schemas_and_tools(self):
        # Greedy: a sampled answer may run into max_tokens, for one in the spaces that JSON allows.
        self.browser.run("document.querySelector('#ask-temperature').value = '0'")
        self.browser.type("#ask-text", "Hello!")
        self.browser.click("#send")
        wait_for(lambda: "ended by stop" in self.browser.text("#talk"), "an answer")
        self.assertIn("tokens, first after", self.browser.text("#talk"))
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
        self.browser.run("document.querySelector('#ask-schema').value = arguments[0]", json.dumps(schema))
        if (pair.bin_dir() / "tandem-grammar").exists():
            self.browser.type("#ask-text", "Is it?")
            self.browser.click("#send")
            wait_for(lambda: self.browser.text("#talk").count("ended by") == 2, "a second answer")
            answer = self.browser.run("return talk[talk.length - 1].content")
            self.assertIsInstance(json.loads(answer)["ok"], bool)
        self.browser.click("#clear")
        self.browser.run("document.querySelector('#ask-schema').value = ''")
        self.browser.run("document.querySelector('#ask-tools').value = arguments[0]", json.dumps([WEATHER]))
        self.browser.type("#ask-text", "What is the weather in Paris?")
        self.browser.click("#send")
        wait_for(lambda: "ended by tool_calls" in self.browser.text("#talk"), "a call")
        self.assertEqual(self.browser.text("#talk code"), 'get_weather({"city": "Paris"})')
        self.browser.run("document.querySelector('#ask-tools').value = ''")
        self.browser.run("document.querySelector('#ask-schema').value = '{'")
        self.browser.type("#ask-text", "again")
        self.browser.click("#send")
        wait_for(lambda: "JSON schema:" in self.browser.text("#talk"), "the mistake is named")
        self.picture("dashboard-playground")

    def test_4_texts_of_clients_are_shown_as_text(self):
        name = "<img/src=x/onerror=document.title='broken'>"
        with self.paused_streams(decoding=1, waiting=0, **{"X-Request-Id": name}):
            # Rows of requests before this one stay until the page asks again.
            wait_for(lambda: any(name in row[0] for row in self.rows()), "the row, with its name as text")
        self.assertNotIn("broken", self.browser.run("return document.title"))

    def test_5_nothing_failed_in_the_page(self):
        # 401 came before the key.
        self.assertEqual([line for line in self.browser.console() if "401" not in line], [])

    def test_5_a_narrow_window_scrolls_down_alone(self):
        narrow = Browser(width=500, height=2600)
        try:
            narrow.open(self.server.url + "/dashboard")
            narrow.run("sessionStorage.setItem('tandem-key', arguments[0])", KEY)
            wait_for(lambda: LONG_NAME in narrow.text("#models"), "the models")
            with self.paused_streams(decoding=2, waiting=0):
                wait_for(lambda: narrow.run("return document.querySelectorAll('#requests tr').length") == 2, "two rows")
                needed, there = narrow.run("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
                self.picture("dashboard-narrow", narrow)
                self.assertLessEqual(needed, there)
        finally:
            narrow.close()

    def test_6_a_dark_page_says_when_the_server_is_gone(self):
        dark = Browser(dark=True, width=800, height=1900)
        try:
            dark.open(self.server.url + "/dashboard")
            dark.run("sessionStorage.setItem('tandem-key', arguments[0])", KEY)
            wait_for(lambda: dark.text("#model") == "m", "the model's name")
            wait_for(lambda: "2048 tokens" in dark.text("#models"), "the models, which could not be had without the key")
            self.assertEqual(dark.run("return getComputedStyle(document.body).backgroundColor"), "rgb(16, 20, 27)")
            with self.paused_streams(decoding=3, waiting=0):
                wait_for(lambda: dark.run("return document.querySelectorAll('#requests tr').length") == 3, "three rows")
                self.picture("dashboard-dark", dark)
            self.server.process.kill()
            wait_for(lambda: "does not respond" in dark.text("#problem"), "the page says that nobody responds")
        finally:
            dark.close()


if __name__ == "__main__":
    browser.needed_programs()
    unittest.main(verbosity=2)
