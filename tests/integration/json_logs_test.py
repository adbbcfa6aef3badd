#!/usr/bin/env python3
"""--log-format json: whatever clients send, each process's lines are JSON objects with the facts as members."""
import json
import os
import pathlib
import signal
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, Pair, wait_for

BODY = {"model": "m", "max_tokens": 4, "ignore_eos": True}


class JsonLogs(unittest.TestCase):
    def test_each_line_of_all_processes_is_an_object(self):
        with Pair("--served-model-name", "m", "--log-format", "json", "--log-level", "DEBUG", "--enable-log-requests",
                       "--enable-log-outputs") as server:
            body = {**BODY, "prompt": "One \U0001f600 \"two\" \\ \u2028 three\n", "n": 2, "temperature": 1}
            status, reply = server.post("/v1/completions", body, **{"X-Request-Id": "abc"})
            self.assertEqual(status, 200)
            self.assertEqual(server.post("/v1/completions", {**body, "response_format": {"type": "json_object"}})[0], 200)
            with socket.create_connection(("127.0.0.1", int(server.port_file.read_text())), LIMIT) as raw:
                raw.sendall(b"GET /\xff\xfe\"\\x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                while raw.recv(4096):
                    pass
            wait_for(lambda: server.log.count('"message":"request finished"') >= 8, "both processes have logged the ends")
            # What a dying process writes from its signal handler is one, too.
            os.kill(server.pid_of("tandem-engine-core"), signal.SIGSEGV)
            server.wait_for_log("flight recording written: ")
            wait_for(lambda: server.get("/health")[0] == 200, "the next engine serves")
            self.assertEqual(server.stop(), 0)
            lines = [json.loads(line) for line in server.log_path.read_bytes().decode().splitlines()]
            self.assertLessEqual({"tandem", "APIServer", "EngineCore"}, {line["processName"] for line in lines})
            for line in lines:
                self.assertLessEqual({"asctime", "levelname", "name", "process", "message"}, set(line))
            last = next(line for line in lines if line["message"].startswith("flight recording written: "))
            self.assertEqual((last["levelname"], last["processName"]), ("FATAL", "EngineCore"))
            self.assertRegex(last["asctime"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            finished = [line for line in lines if line["message"] == "request finished" and
                        line["request_id"].startswith(("0_cmpl-abc", "1_cmpl-abc", "cmpl-abc"))]
            frontend = [line for line in finished if line["processName"] == "APIServer"]
            self.assertEqual(len(frontend), 2, finished)
            # The same ids in the engine's lines.
            self.assertEqual({line["request_id"] for line in frontend},
                             {line["request_id"] for line in finished if line["processName"] == "EngineCore"})
            self.assertEqual((frontend[0]["reason"], frontend[0]["output_tokens"]), ("length", 4))
            self.assertGreater(frontend[0]["e2e_ms"], 0)
            # Texts and token ids are JSON's own.
            outputs = [line for line in lines if line["message"] == "request output" and "abc" in line["request_id"]]
            self.assertEqual({line["text"] for line in outputs if "text" in line},
                             {choice["text"] for choice in json.loads(reply)["choices"]})
            self.assertEqual({len(line["token_ids"]) for line in outputs if "token_ids" in line}, {4})
            prompt = next(line for line in lines if line["message"] == "request prompt")
            self.assertEqual(prompt["text"], body["prompt"])
            access = next(line for line in lines if line.get("request_id") == "abc")
            self.assertEqual((access["method"], access["target"], access["status"]), ("POST", "/v1/completions", 200))
            self.assertIn('"POST /v1/completions HTTP/1.1" 200 OK', access["message"])


if __name__ == "__main__":
    unittest.main()
