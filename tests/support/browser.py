"""A headless Chromium, driven through chromedriver's HTTP interface (W3C WebDriver)."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request

from pair import LIMIT, free_port, skip, wait_for

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def needed_programs():
    """Ends the test as skipped where a program is missing."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            skip(f"{program} is not installed (deploy/install_dependencies.sh --tests)")


class Browser:
    """REQUIRES: needed_programs(). dark: the page is shown as to a user who prefers dark colours."""

    def __init__(self, dark=False, width=1280, height=1700):
        self.folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        environment = dict(os.environ, HOME=self.folder.name)
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env=environment)
        wait_for(self._is_up, "chromedriver listens")
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     f"--user-data-dir={self.folder.name}/profile", f"--window-size={width},{height}"]
        if dark:
            arguments.append("--blink-settings=preferredColorScheme=0")
        options = {"args": arguments, "binary": shutil.which("chromium")}
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]

    def _is_up(self):
        try:
            return self._call("GET", "/status")["ready"]
        except OSError:
            return False

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"},
                                         method=method)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def _ask(self, method, path, body=None):
        return self._call(method, f"/session/{self.session}{path}", body)

    def open(self, url):
        self._ask("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """What a function body returns in the page."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def _element(self, selector):
        return self._ask("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self._ask("POST", f"/element/{self._element(selector)}/click", {})

    def type(self, selector, text):
        self._ask("POST", f"/element/{self._element(selector)}/value", {"text": text})

    def console(self):
        """Errors and warnings of the page since the last call."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._ask("GET", "/screenshot")))

    def close(self):
        self._ask("DELETE", "")
        self.driver.terminate()
        self.driver.wait(LIMIT)
        self.folder.cleanup()
