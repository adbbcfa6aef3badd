"""Tandem as an application of Ray Serve, for teams that have Ray: each replica is `tandem serve`, a process of its own beside
the actor, to which requests are passed on as they are, streams included.

  serve run --app-dir deploy/ray serve_app:app model=/models/model flags="--served-model-name model"

Arguments: model; flags of `tandem serve` as on a command line; program (default: tandem, of PATH). Everything else is Ray's:
the number of replicas, CPUs, autoscaling and placement are options of the deployment `Tandem` in a Serve config file. A replica
should have as many CPUs as the server has threads, which Ray does not enforce: --threads does.

Ray balances by ongoing requests and knows nothing of prefixes; with several engines in one replica (--data-parallel-size,
--data-parallel-routing prefix) Tandem does.
"""
import asyncio
import pathlib
import shlex
import subprocess
import tempfile

import aiohttp
from ray import serve
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

# Of one connection, not of the message.
HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}


def end_to_end(headers):
    return [(name, value) for name, value in headers if name.lower() not in HOP_BY_HOP]


@serve.deployment(max_ongoing_requests=256, health_check_period_s=10, health_check_timeout_s=30,
                  graceful_shutdown_timeout_s=60, ray_actor_options={"num_cpus": 1})
class Tandem:
    async def __init__(self, model, flags="", program="tandem"):
        self.folder = tempfile.TemporaryDirectory(prefix="tandem-ray-")
        port_file = pathlib.Path(self.folder.name) / "port"
        words = [program, "serve", model, "--host", "127.0.0.1", "--port", "0", "--port-file", str(port_file),
                 *shlex.split(flags)]
        # With the actor, however that ends, its server ends in order.
        self.server = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *words])
        self.session = None
        while not port_file.exists() or not await self.answers("/health"):
            if self.server.poll() is not None:
                raise RuntimeError(f"`{shlex.join(words)}` ended with status {self.server.returncode}")
            if self.session is None and port_file.exists():
                # Nothing limits a stream's time but its own request's.
                self.session = aiohttp.ClientSession(
                    f"http://127.0.0.1:{port_file.read_text().strip()}", auto_decompress=False,
                    timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=0))
            await asyncio.sleep(0.05)

    async def answers(self, path):
        if self.session is None:
            return False
        try:
            async with self.session.get(path) as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def check_health(self):
        """Of the server, not of its engine core: that is started again by the server, and its streams go on."""
        if self.server.poll() is not None or not await self.answers("/version"):
            raise RuntimeError("the server is gone")

    async def __call__(self, request: Request):
        target = request.url.path + ("?" + request.url.query if request.url.query else "")
        try:
            reply = await self.session.request(request.method, target, data=await request.body(),
                                               headers=end_to_end(request.headers.items()), allow_redirects=False)
        except aiohttp.ClientError as why:
            return Response(f"the server is gone: {why}", status_code=503)

        async def body():
            # Left early when the client is gone: the connection is closed, and the request aborted.
            async with reply:
                async for piece in reply.content.iter_any():
                    yield piece

        response = StreamingResponse(body(), status_code=reply.status)
        response.raw_headers = [(name.lower().encode(), value.encode()) for name, value in end_to_end(reply.headers.items())]
        return response

    async def __del__(self):
        if self.session is not None:
            await self.session.close()
        self.server.terminate()
        self.server.wait()


def app(args: dict):
    return Tandem.bind(**args)
