#pragma once

// Pieces of responses as JSON text, shared by the endpoints. Pure; any thread. What runs once per
// token (AppendEscaped, ChunkWriter) appends to a buffer and does not allocate.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/openai/json.h"
#include "frontend/openai/responses.h"
#include "frontend/processing/message_delta.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// The inside of a JSON string. REQUIRES: text is UTF-8.
void AppendEscaped(std::string_view text, std::string* out);
void AppendQuoted(std::string_view text, std::string* out);
void AppendInteger(int64_t value, std::string* out);
void AppendTokenIds(const std::vector<TokenId>& ids, std::string* out);

// ,"finish_reason":…,"stop_reason":…,"weight_versions":null
void AppendFinish(const MessageDelta& delta, std::string* out);
// Which a choice's last delta may have, and no other.
constexpr std::string_view kNoKvTransfer = ",\"kv_transfer_params\":null";
std::string KvTransferField(const MessageDelta& last);
Json FingerprintJson(const ResponseHead& head);
Json UsageJson(const Usage& usage);
// The key "metrics"; null where there is nothing to show.
Json MetricsJson(const Usage& usage);
Json StopReasonJson(const wire::StopReason& reason);
Json TokenIdsJson(const std::vector<TokenId>& ids);
// [null, {"<token id>": {logprob, rank, decoded_token}, …}, …]; the first token has no logprob.
Json PromptLogprobsJson(const std::vector<PositionLogprobs>& positions);
// {content: [{token, logprob, bytes, top_logprobs}]}; the num_top most likely tokens, -1: all.
Json ChatLogprobsJson(const std::vector<PositionLogprobs>& positions, int64_t num_top);
// The engine's packed map; null when empty or malformed.
Json UnpackJson(const wire::RawValue& value);

// Collects a completion's logprobs: parallel lists over its tokens.
// Offsets are characters from the start of the text.
class CompletionLogprobs {
 public:
  // num_top: other tokens shown at each position, at most; -1: all.
  explicit CompletionLogprobs(int64_t num_top, size_t text_offset = 0)
      : num_top_(num_top), text_offset_(text_offset) {}
  void AddUnscored(std::string_view token);  // the first echoed token
  void Add(const PositionLogprobs& position);
  size_t text_offset() const { return text_offset_; }
  Json ToJson() const;

 private:
  void AddToken(std::string_view token);
  const int64_t num_top_;
  size_t text_offset_;
  std::vector<std::string> tokens_;
  std::vector<size_t> offsets_;
  std::vector<std::optional<double>> token_logprobs_;
  std::vector<std::vector<ScoredToken>> top_;  // empty: null
};

// Writes one stream's events; renders what they share once.
class ChunkWriter {
 public:
  // object: "chat.completion.chunk" or "text_completion".
  ChunkWriter(const ResponseHead& head, std::string_view object);

  // data: {…,"choices":[{"index":N,<choice>}]<rest>}
  void Begin(int choice, std::string* out) const;
  // usage: shown on every chunk with continuous_usage_stats; null: no key.
  void End(std::string_view rest, const Usage* usage, std::string* out) const;

  // The event after the last choice: no choices, the usage.
  void AppendUsage(const Usage& usage, std::string* out) const;
  static void AppendDone(std::string* out) { out->append("data: [DONE]\n\n"); }

  const std::string& fingerprint_json() const { return fingerprint_json_; }

 private:
  std::string prefix_;  // up to the choice's index
  std::string fingerprint_json_;
};

}  // namespace tandem
