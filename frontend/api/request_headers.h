#pragma once

// What a request brings besides its body: its headers, and what the server knows of it when it
// arrives. Thread: the exchange's shard.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "frontend/adapters/served_adapters.h"
#include "frontend/api/context.h"
#include "frontend/http/router.h"
#include "frontend/processing/input_processor.h"

namespace tandem {

struct RequestHeaders {
  RequestContext context;           // external_id: the bare id, before the endpoint's prefix
  bool id_from_client = false;      // X-Request-Id: wins over the body's request_id
  std::optional<int64_t> priority;  // X-Vllm-Priority: wins over the body's
  std::optional<double> timeout_s;  // the client's, and at most the server's; from the arrival
  std::string client_salt;          // goes before the body's cache_salt
  std::string system_fingerprint;   // of its response; empty: null
  ServedAdaptersPtr adapters = std::make_shared<const ServedAdapters>();  // at its arrival
};

// UNAVAILABLE until the engine is ready; INVALID_ARGUMENT with the header's name.
StatusOr<RequestHeaders> ReadHeaders(const HttpRequest& request, const ApiContext& context);

}  // namespace tandem
