#!/usr/bin/env python3
"""OpenVINO GenAI's continuous batching as a server of /v1/completions, for `compare --sides-file`. It is a library only.

  openvino_server.py FOLDER --port 8000 --threads 2 --slots 32 --kv-gb 2 --tokenizer MODEL

FOLDER is what `optimum-cli export openvino` wrote. The engine has a process of its own, because its step keeps Python's
lock. Takes what `tandem bench serve` sends: a prompt as text or as token ids, streamed, greedy, to max_tokens whatever the
text is. Needs openvino-genai, numpy and tokenizers.
"""
import argparse
import asyncio
import itertools
import json
import multiprocessing
import pathlib
import signal


def run_engine(options, connection):
    """Takes (request, ids, max_tokens), sends lists of (request, new ids, whether these were the last)."""
    import numpy
    import openvino
    import openvino_genai

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_seqs, scheduler.cache_size = options.slots, options.kv_gb
    scheduler.max_num_batched_tokens, scheduler.dynamic_split_fuse = options.batched_tokens, True
    scheduler.enable_prefix_caching = True
    properties = {"INFERENCE_NUM_THREADS": options.threads, **json.loads(options.properties)}
    pipeline = openvino_genai.ContinuousBatchingPipeline(str(options.folder), scheduler, "CPU", properties)
    connection.send("ready")
    running = {}
    while True:
        while not running or connection.poll():
            try:
                request, ids, max_tokens = connection.recv()
            except EOFError:
                return
            config = openvino_genai.GenerationConfig()
            config.max_new_tokens, config.ignore_eos, config.do_sample = max_tokens, True, False
            tensor = openvino.Tensor(numpy.array([ids], dtype=numpy.int64))
            running[request] = [pipeline.add_request(request, tensor, config), max_tokens]
        pipeline.step()
        news = []
        for request, entry in list(running.items()):
            handle, ids = entry[0], []
            while handle.can_read():
                ids += [token for output in handle.read().values() for token in output.generated_ids]
            entry[1] -= len(ids)
            if entry[1] <= 0:
                del running[request]
            if ids:
                news.append((request, ids, entry[1] <= 0))
        if news:
            connection.send(news)


class Front:
    def __init__(self, options, connection):
        from tokenizers import Tokenizer

        self.connection, self.streams, self.numbers = connection, {}, itertools.count(1)
        self.tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
        self.name = options.folder.name

    def take_news(self):
        for request, ids, is_last in self.connection.recv():
            self.streams[request].put_nowait((ids, is_last))

    async def complete(self, body, writer):
        prompt = body["prompt"]
        ids = self.tokenizer.encode(prompt).ids if isinstance(prompt, str) else prompt
        request = next(self.numbers)
        queue = self.streams[request] = asyncio.Queue()
        self.connection.send((request, ids, body["max_tokens"]))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

        def send(event):
            data = f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))

        head = {"id": f"cmpl-{request}", "object": "text_completion", "model": self.name}
        output, text, is_last = [], "", False
        while not is_last:
            ids_now, is_last = await queue.get()
            for index, token in enumerate(ids_now):
                output.append(token)
                whole = self.tokenizer.decode(output)
                reason = "length" if is_last and index + 1 == len(ids_now) else None
                send({**head, "choices": [{"index": 0, "text": whole[len(text):], "finish_reason": reason}]})
                text = whole
            await writer.drain()
        del self.streams[request]
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(output), "total_tokens": len(ids) + len(output)}
        send({**head, "choices": [], "usage": usage})
        send("[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:])}
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                path = head.split(" ", 2)[1]
                if path == "/v1/completions":
                    await self.complete(json.loads(body), writer)
                    continue
                found = {"/health": {}, "/v1/models": {"object": "list", "data": [{"id": self.name, "object": "model"}]}}.get(path)
                reply = json.dumps(found if found is not None else {"error": {"message": f"no {path}"}}).encode()
                status = "404 Not Found" if found is None else "200 OK"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(reply)}\r\n\r\n".encode() + reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def main(options, connection):
    front = Front(options, connection)
    asyncio.get_running_loop().add_reader(connection.fileno(), front.take_news)
    async with await asyncio.start_server(front.serve, "127.0.0.1", options.port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True, help="the folder of tokenizer.json")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--kv-gb", type=int, default=2)
    parser.add_argument("--batched-tokens", type=int, default=2048, help="of a step; the library's own default is 256")
    parser.add_argument("--properties", default="{}", help="JSON of the device's properties, such as INFERENCE_PRECISION_HINT")
    parsed = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    engine = context.Process(target=run_engine, args=(parsed, theirs), daemon=True)
    engine.start()
    theirs.close()
    if ours.recv() != "ready":
        raise SystemExit("the engine is not ready")
    asyncio.run(main(parsed, ours))
