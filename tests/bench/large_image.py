#!/usr/bin/env python3
"""What a large image costs those who are reading: the longest pause between tokens of 4 streams while its vision tower runs.

  TANDEM_GOLDENS=goldens TANDEM_BIN_DIR=build/release/bin tests/bench/large_image.py --side 1024

The model is made up (--load-format dummy): Qwen3-VL's tower of 24 layers of 1,024, with the recorded set's tokenizer and a
text model of 8 layers. The image is as large as its preprocessor allows.
"""
import argparse
import base64
import json
import os
import pathlib
import shutil
import statistics
import struct
import sys
import tempfile
import threading
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair


def make_model(folder, side):
    recorded = pathlib.Path(os.environ["TANDEM_GOLDENS"]) / "vision" / "qwen3_vl"
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.json", "generation_config.json"):
        shutil.copy(recorded / name, folder)
    config = json.loads((recorded / "config.json").read_text())
    config["text_config"].update(hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8,
                                 num_key_value_heads=2, head_dim=64, max_position_embeddings=65536)
    config["text_config"]["rope_scaling"]["mrope_section"] = [12, 10, 10]
    config["vision_config"].update(depth=24, hidden_size=1024, intermediate_size=4096, num_heads=16, out_hidden_size=512,
                                   num_position_embeddings=2304, deepstack_visual_indexes=[5, 11, 17])
    preprocessor = json.loads((recorded / "preprocessor_config.json").read_text())
    preprocessor["size"] = {"longest_edge": side * side, "shortest_edge": 4096}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    return folder


def png(side, shade=0):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((x * 7 + y * 3 + shade) % 256 for x in range(3 * side)) for y in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Stream(threading.Thread):
    """Reads a stream until told to stop; `times` are those of its tokens."""
    def __init__(self, server, seed):
        super().__init__(daemon=True)
        self.server, self.seed, self.times, self.done = server, seed, [], threading.Event()
        self.start()

    def run(self):
        connection = self.server.connect()
        connection.request("POST", "/v1/completions", json.dumps(
            {"model": "m", "prompt": [self.seed + 20] * 32, "max_tokens": 60000, "ignore_eos": True, "stream": True}),
            {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        while not self.done.is_set() and (line := response.readline()):
            if line.startswith(b"data:"):
                self.times.append(time.monotonic())
        connection.close()


def ask(server, image):
    begin = time.monotonic()
    url = "data:image/png;base64," + base64.b64encode(image).decode()
    status, body = server.post("/v1/chat/completions", {"model": "m", "max_tokens": 1, "messages": [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]})
    assert status == 200, body
    return begin, time.monotonic(), json.loads(body)["usage"]["prompt_tokens"]


def gaps(streams, begin, end):
    all_gaps = []
    for stream in streams:
        times = [t for t in list(stream.times) if begin <= t <= end]
        all_gaps += [b - a for a, b in zip([begin, *times], [*times, end])]
    return all_gaps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=1024, help="pixels")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("flags", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-image-") as folder:
        model = make_model(pathlib.Path(folder), options.side)
        with Pair("--served-model-name", "m", "--load-format", "dummy", "--kv-cache-memory-bytes", "1g", "--no-enable-prefix-caching",
                  *options.flags, model=model) as server:
            ask(server, png(256))
            begin, end, num_tokens = ask(server, png(options.side))
            print(f"image of {num_tokens} tokens, server idle: {end - begin:.2f} s", flush=True)
            streams = [Stream(server, i) for i in range(options.streams)]
            while any(len(stream.times) < 50 for stream in streams):
                time.sleep(0.01)
            alone = time.monotonic()
            time.sleep(2)
            begin, end, _ = ask(server, png(options.side, shade=1))  # the rows of the first one are kept
            for name, span in (("streams alone", (alone, begin)), ("while the image is computed", (begin, end))):
                some = sorted(gaps(streams, *span))
                print(f"{name}: {span[1] - span[0]:.2f} s, {len(some) / (span[1] - span[0]):.0f} tokens/s, between tokens p50 "
                      f"{1e3 * statistics.median(some):.1f} ms, p99 {1e3 * some[len(some) * 99 // 100]:.1f} ms, longest {1e3 * some[-1]:.1f} ms")
            for stream in streams:
                stream.done.set()
            for stream in streams:
                stream.join()


if __name__ == "__main__":
    main()
