#pragma once

// What the handlers of one shard work with: the operator's choices and the parts that serve
// requests. Built by main and borrowed; everything outlives the server.

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "frontend/adapters/served_adapters.h"
#include "frontend/api/admission_gate.h"
#include "frontend/api/live_requests.h"
#include "frontend/api/request_log.h"
#include "frontend/engine_client/engine_client.h"
#include "frontend/metrics/metrics.h"
#include "frontend/metrics/request_stats.h"
#include "frontend/net/net.h"
#include "frontend/openai/json.h"
#include "frontend/processing/input_processor.h"

namespace tandem {

class AdapterDirectory;
class ImageLoader;
class ResponseStore;
class Tracer;

// What the operator chose for the API.
struct ApiOptions {
  std::vector<std::string> served_model_names;  // not empty; the first is the default
  bool skip_model_name_validation = false;
  bool enable_prompt_tokens_details = false;
  bool enable_force_include_usage = false;
  bool enable_per_request_metrics = false;
  bool return_tokens_as_token_ids = false;
  int64_t stream_interval = 1;
  double request_timeout_s = 0;       // from its arrival; 0: none
  std::string system_fingerprint;     // empty: null
  bool fingerprint_has_mode = false;  // "-batch-invariant" follows it where the engines are so
  JsonLimits json_limits;
  RequestLogOptions request_log;
};

// What endpoints report about the server as a whole.
struct ServerFacts {
  std::string model_root;  // the folder the model was loaded from
  std::string root_path;   // where a proxy has the server, or ""
  int64_t started_at = 0;  // unix seconds
  bool track_load = false;
  bool dev_mode = false;          // DevRoutes exist
  bool has_docs = true;           // /openapi.json and /docs exist
  bool has_dashboard = false;     // DashboardRoutes exist
  bool pools = false;             // the model's routes are those of vectors
  bool changes_adapters = false;  // /v1/load_lora_adapter exists
  std::string tokenizer_info;     // JSON; empty: no such route
  std::vector<std::pair<std::string, std::string>> flags;  // effective values, without secrets
  std::function<int()> num_requests;
  std::function<bool()> is_draining;
};

// What the handlers of all shards share.
struct ApiParts {
  const InputProcessor* input_processor = nullptr;
  TextPool* text_pool = nullptr;
  AdmissionGate* admission_gate = nullptr;
  Metrics* metrics = nullptr;
  const Clock* clock = nullptr;
  const ServerFacts* facts = nullptr;
  ResponseStore* response_store = nullptr;  // null: responses are not kept
  const Tracer* tracer = nullptr;           // null: no traces
  AdapterDirectory* adapter_directory = nullptr;
  ImageLoader* image_loader = nullptr;  // null: the model takes no images
};

struct ApiContext : ApiParts {
  explicit ApiContext(const ApiParts& parts = {}) : ApiParts(parts) {}
  ApiContext(const ApiContext&) = delete;

  EngineClient* engine_client = nullptr;  // this shard's
  // What requests may name beside the model; replaced on this shard.
  ServedAdaptersPtr adapters = std::make_shared<const ServedAdapters>();
  ApiOptions options;
  std::vector<StepTokens> step_tokens;        // this shard's, one per engine
  std::set<std::string_view> warnings_given;  // about what requests ask for in vain
  LiveRequests live_requests;                 // this shard's
};

}  // namespace tandem
