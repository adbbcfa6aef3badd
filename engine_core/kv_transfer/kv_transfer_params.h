#pragma once

// kv_transfer_params: what a request asks of a connector, and what the response of a prefill has
// for the engine that decodes. Proxies pass them between engines; the keys are those of vLLM's NIXL
// connector, which all of them know. Thread: pure functions.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/ids.h"
#include "proto_msgpack/schema.h"

namespace tandem {

struct KvTransferParams {
  bool do_remote_decode = false;   // another engine will decode: its KV is to be left for it
  bool do_remote_prefill = false;  // another engine has computed the prompt
  // Where it is; of a value that is too long or of another type, nothing.
  std::string remote_host = {};
  int64_t remote_port = 0;
  std::string remote_ticket = {};
  std::optional<int32_t> remote_num_tokens = {};
};

// Of a request's extra_args. Keys that are unknown, and values of another type, say nothing.
KvTransferParams ReadKvTransferParams(const wire::RawValue& extra_args);

// Blocks that a TandemConnector holds for the one that shows the ticket.
struct RemoteBlocks {
  std::string host;
  int port = 0;  // 0: host is "unix:/path"
  std::string ticket;
  std::span<const BlockId> blocks;  // for proxies alone
};

// Of the response to a request with do_remote_decode.
wire::RawValue RemotePrefillParams(const std::string& engine_id, const RequestId& request_id,
                                   int32_t num_tokens,
                                   const std::optional<RemoteBlocks>& remote = {});

}  // namespace tandem
