#include "frontend/api/request_headers.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "common/shorten.h"
#include "common/strings.h"

namespace tandem {
namespace {

// nullopt: the header is not there.
StatusOr<std::optional<int64_t>> ReadPriority(const HttpRequest& request) {
  const std::string_view text = request.Header("x-vllm-priority");
  if (text.empty()) return std::optional<int64_t>();
  const std::optional<int64_t> priority = ParseNumber<int64_t>(text);
  if (priority) return priority;
  return InvalidArgumentError("X-Vllm-Priority is '" + Shorten(text) +
                              "', must be an integer of 64 bits");
}

// nullopt: the header is not there.
StatusOr<std::optional<std::string>> ReadSession(const HttpRequest& request) {
  constexpr size_t kMaxSessionBytes = 256;
  const std::string_view session = request.Header("x-session-id");
  if (session.empty()) return std::optional<std::string>();
  if (session.size() > kMaxSessionBytes) {
    return InvalidArgumentError("X-Session-Id has " + std::to_string(session.size()) +
                                " bytes, must have at most " + std::to_string(kMaxSessionBytes));
  }
  if (FindInvalidUtf8(session) == session.npos) return std::optional(std::string(session));
  return InvalidArgumentError("X-Session-Id must be UTF-8");
}

// The index of the engine that X-data-parallel-rank names; nullopt: it is not there.
StatusOr<std::optional<int32_t>> ReadRank(const HttpRequest& request, const EngineClient& engines) {
  const std::string_view text = request.Header("x-data-parallel-rank");
  if (text.empty()) return std::optional<int32_t>();
  const int first = engines.start_rank(), last = first + engines.num_engines() - 1;
  const std::optional<int> rank = ParseNumber<int>(text);
  if (rank && *rank >= first && *rank <= last) return std::optional<int32_t>(*rank - first);
  return InvalidArgumentError("X-data-parallel-rank is '" + Shorten(text) + "', must be in [" +
                              std::to_string(first) + ", " + std::to_string(last) + "]");
}

// Seconds, from a header that counts in `unit` seconds; nullopt: it is not there.
StatusOr<std::optional<double>> ReadTimeout(const HttpRequest& request, std::string_view name,
                                            double unit) {
  const std::string_view text = request.Header(name);
  if (text.empty()) return std::optional<double>();
  const std::optional<double> value = ParseNumber<double>(text);
  if (!value || !(*value > 0)) {
    return InvalidArgumentError(std::string(name) + " is '" + Shorten(text) +
                                "', must be a number above 0");
  }
  constexpr double kLongest = 1e6;  // a clock may count so far
  return std::optional(std::min(*value * unit, kLongest));
}

// The shortest of those that the client and the operator have set.
StatusOr<std::optional<double>> TimeoutOf(const HttpRequest& request, const ApiOptions& options) {
  ASSIGN_OR_RETURN(std::optional<double> shortest,
                   ReadTimeout(request, "request-timeout-ms", 1e-3));
  ASSIGN_OR_RETURN(const std::optional<double> in_seconds,
                   ReadTimeout(request, "x-request-timeout", 1));
  const auto consider = [&shortest](double timeout_s) {
    shortest = std::min(timeout_s, shortest.value_or(timeout_s));
  };
  if (in_seconds) consider(*in_seconds);
  if (options.request_timeout_s > 0) consider(options.request_timeout_s);
  return shortest;
}

std::string SystemFingerprint(const ApiOptions& options,
                              const wire::EngineCoreReadyResponse& engine) {
  const bool has_mode = options.fingerprint_has_mode && engine.batch_invariant.value_or(false);
  return options.system_fingerprint + (has_mode ? "-batch-invariant" : "");
}

}  // namespace

StatusOr<RequestHeaders> ReadHeaders(const HttpRequest& request, const ApiContext& context) {
  const wire::EngineCoreReadyResponse* engine = context.engine_client->engine_info();
  if (engine == nullptr) return UnavailableError("the engine is not ready");
  RequestHeaders headers;
  headers.context.external_id = request.request_id;
  headers.context.arrival_time = request.arrival_time;
  headers.context.max_model_len = engine->max_model_len;
  headers.system_fingerprint = SystemFingerprint(context.options, *engine);
  headers.adapters = context.adapters;
  headers.client_salt = request.client_salt;
  headers.id_from_client = request.Header("x-request-id") == request.request_id;
  ASSIGN_OR_RETURN(headers.priority, ReadPriority(request));
  ASSIGN_OR_RETURN(headers.context.data_parallel_rank, ReadRank(request, *context.engine_client));
  ASSIGN_OR_RETURN(headers.timeout_s, TimeoutOf(request, context.options));
  ASSIGN_OR_RETURN(headers.context.session_id, ReadSession(request));
  return headers;
}

}  // namespace tandem
