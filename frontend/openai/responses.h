#pragma once

// The parts of a response before they are written as JSON. Values; any thread.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto_msgpack/request_spec_decode_metrics.h"

namespace tandem {

// The keys that all events, or the body, of one response share.
struct ResponseHead {
  std::string id;  // "cmpl-…", "chatcmpl-…"
  int64_t created = 0;
  std::string model;
  std::string system_fingerprint;  // empty: null
};

// Durations of the stages of a request with one choice; empty where an end was never stamped.
struct RequestTimings {
  std::optional<double> time_to_first_token_ms;  // from the first scheduling
  std::optional<double> generation_time_ms;      // first to last token
  std::optional<double> queue_time_ms;
  std::optional<double> mean_itl_ms;
  std::optional<double> tokens_per_second;  // from the first scheduling to the last token
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<int64_t> cached_tokens;  // when set, shown together with created_cache_tokens
  int64_t created_cache_tokens = 0;
  std::optional<int64_t> image_tokens = {};      // of prompt_tokens; shown together with those
  std::optional<int64_t> reasoning_tokens = {};  // of completion_tokens, with a reasoning parser
  std::optional<RequestTimings> timings = {};    // at the end, when the server shows them
  // Likewise, when the engine reports them; of a request with one choice.
  std::optional<wire::RequestSpecDecodeMetrics> drafts = {};
};

// A token with its logprob. text: the bytes as UTF-8, invalid ones replaced by U+FFFD.
struct ScoredToken {
  int32_t token_id = 0;
  std::string text;
  std::string bytes;
  double logprob = 0;  // never below kLowestLogprob, never NaN
  int64_t rank = 0;    // from 1
};

// One position: the sampled (or prompt) token and the most likely ones, each token once.
struct PositionLogprobs {
  ScoredToken token;
  std::vector<ScoredToken> top;  // starts with `token`
};

// What a step adds to one tool call of a message.
struct ToolCallDelta {
  int index = 0;          // of the call within the message
  std::string id;         // with the call's first delta, else empty
  std::string name;       // likewise
  std::string arguments;  // the next piece of their JSON text
};

// What a piece of output adds to a message, in order: reasoning comes before content and content
// before calls, except across a break. Breaks are rare, so most deltas have none.
struct MessageParts {
  // The sizes of what comes before the break.
  struct Break {
    size_t reasoning = 0;
    size_t content = 0;
    size_t tool_calls = 0;
  };

  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> tool_calls;
  std::vector<Break> breaks;

  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
  void AddReasoning(std::string_view text);
  void AddContent(std::string_view text);
  void AddCall(ToolCallDelta call) { tool_calls.push_back(std::move(call)); }

  // Calls the functions with the parts in order: a text, a text, a ToolCallDelta&.
  template <class OnReasoning, class OnContent, class OnCall>
  void ForEach(const OnReasoning& on_reasoning, const OnContent& on_content, const OnCall& on_call);
};

inline void MessageParts::AddReasoning(std::string_view text) {
  if (text.empty()) return;
  const Break last = breaks.empty() ? Break() : breaks.back();
  if (content.size() > last.content || tool_calls.size() > last.tool_calls) {
    breaks.push_back({reasoning.size(), content.size(), tool_calls.size()});
  }
  reasoning += text;
}

inline void MessageParts::AddContent(std::string_view text) {
  if (text.empty()) return;
  if (tool_calls.size() > (breaks.empty() ? 0 : breaks.back().tool_calls)) {
    breaks.push_back({reasoning.size(), content.size(), tool_calls.size()});
  }
  content += text;
}

template <class OnReasoning, class OnContent, class OnCall>
void MessageParts::ForEach(const OnReasoning& on_reasoning, const OnContent& on_content,
                           const OnCall& on_call) {
  const auto text = [](const std::string& whole, size_t from, size_t to) {
    return std::string_view(whole).substr(from, to - from);
  };
  Break from;
  for (size_t i = 0; i <= breaks.size(); ++i) {
    const bool last = i == breaks.size();
    const Break to = last ? Break{reasoning.size(), content.size(), tool_calls.size()} : breaks[i];
    if (to.reasoning > from.reasoning) on_reasoning(text(reasoning, from.reasoning, to.reasoning));
    if (to.content > from.content) on_content(text(content, from.content, to.content));
    for (size_t call = from.tool_calls; call < to.tool_calls; ++call) on_call(tool_calls[call]);
    from = to;
  }
}

// Why a choice ended, in the API's terms.
enum class FinishReason {
  kStop,  // an end token, a stop token or a stop string
  kLength,
  kToolCalls,  // like kStop, after tool calls
  kAbort,
  kError,  // never shown: the request ends with an error instead
  kRepetition,
};

inline constexpr std::array<std::string_view, 6> kFinishReasonNames = {
    "stop", "length", "tool_calls", "abort", "error", "repetition"};
constexpr std::string_view FinishReasonName(FinishReason reason) {
  return kFinishReasonNames[static_cast<size_t>(reason)];
}

inline constexpr double kLowestLogprob = -9999.0;  // stands for minus infinity in JSON

}  // namespace tandem
