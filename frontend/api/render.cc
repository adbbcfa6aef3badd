#include "frontend/api/render.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

using std::string_view_literals::operator""sv;  // gcc 12 calls strlen for other literals

size_t CountCharacters(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

Json ScoredTokenJson(const ScoredToken& token) {
  Json bytes = Json::array();
  for (const char c : token.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token.text}, {"logprob", token.logprob}, {"bytes", std::move(bytes)}};
}

void AppendUsageJson(const Usage& usage, std::string* out) {
  out->append("{\"prompt_tokens\":"sv);
  AppendInteger(usage.prompt_tokens, out);
  out->append(",\"total_tokens\":"sv);
  AppendInteger(usage.prompt_tokens + usage.completion_tokens, out);
  out->append(",\"completion_tokens\":"sv);
  AppendInteger(usage.completion_tokens, out);
  if (usage.cached_tokens) {
    out->append(",\"prompt_tokens_details\":{\"cached_tokens\":"sv);
    AppendInteger(*usage.cached_tokens, out);
    out->append(",\"created_cache_tokens\":"sv);
    AppendInteger(usage.created_cache_tokens, out);
    if (usage.image_tokens) {
      out->append(",\"multimodal_tokens\":{\"image\":"sv);
      AppendInteger(*usage.image_tokens, out);
      out->append("}"sv);
    }
    out->append("}"sv);
  }
  if (usage.reasoning_tokens) {
    out->append(",\"completion_tokens_details\":{\"reasoning_tokens\":"sv);
    AppendInteger(*usage.reasoning_tokens, out);
    out->append("}"sv);
  }
  out->append("}"sv);
}

}  // namespace

void AppendEscaped(std::string_view text, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out->append(text, start, i - start);
    start = i + 1;
    switch (c) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\r':
        out->append("\\r");
        break;
      case '\t':
        out->append("\\t");
        break;
      default:
        out->append("\\u00");
        out->push_back(kHex[c >> 4]);
        out->push_back(kHex[c & 15]);
    }
  }
  out->append(text, start, text.size() - start);
}

void AppendQuoted(std::string_view text, std::string* out) {
  out->push_back('"');
  AppendEscaped(text, out);
  out->push_back('"');
}

void AppendInteger(int64_t value, std::string* out) {
  char text[24];
  out->append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

void AppendTokenIds(const std::vector<TokenId>& ids, std::string* out) {
  out->push_back('[');
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out->push_back(',');
    AppendInteger(ids[i], out);
  }
  out->push_back(']');
}

void AppendFinish(const MessageDelta& delta, std::string* out) {
  if (!delta.finish_reason) {
    out->append(",\"finish_reason\":null,\"stop_reason\":null,\"weight_versions\":null"sv);
    return;
  }
  out->append(",\"finish_reason\":"sv);
  AppendQuoted(FinishReasonName(*delta.finish_reason), out);
  out->append(",\"stop_reason\":"sv).append(DumpJson(StopReasonJson(delta.stop_reason)));
  out->append(",\"weight_versions\":null"sv);
}

std::string KvTransferField(const MessageDelta& last) {
  return ",\"kv_transfer_params\":" + DumpJson(UnpackJson(last.extras().kv_transfer_params));
}

Json FingerprintJson(const ResponseHead& head) {
  return head.system_fingerprint.empty() ? Json(nullptr) : Json(head.system_fingerprint);
}

Json UsageJson(const Usage& usage) {
  Json details = nullptr;
  if (usage.cached_tokens) {
    details = {
        {"cached_tokens", *usage.cached_tokens},
        {"created_cache_tokens", usage.created_cache_tokens},
        {"multimodal_tokens",
         usage.image_tokens ? Json::object({{"image", *usage.image_tokens}}) : Json(nullptr)}};
  }
  Json completion_details = nullptr;
  if (usage.reasoning_tokens) completion_details = {{"reasoning_tokens", *usage.reasoning_tokens}};
  return {{"prompt_tokens", usage.prompt_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"prompt_tokens_details", std::move(details)},
          {"completion_tokens_details", std::move(completion_details)}};
}

namespace {

Json DraftsJson(const wire::RequestSpecDecodeMetrics& drafts) {
  const auto ratio = [](int64_t part, int64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  const int64_t num_steps = drafts.num_steps(), num_accepted = drafts.num_accepted();
  Json json = {{"mean_acceptance_length", 1 + ratio(num_accepted, num_steps)},
               {"draft_acceptance_rate", ratio(num_accepted, drafts.num_draft_tokens)},
               {"acceptance_histogram", drafts.histogram},
               {"num_spec_steps", num_steps},
               {"num_accepted_draft_tokens", num_accepted},
               {"num_draft_tokens", drafts.num_draft_tokens},
               {"num_spec_tokens", drafts.num_spec_tokens}};
  if (!drafts.per_step_accepted.empty()) {
    json["per_step_accepted"] = drafts.per_step_accepted;
    json["per_step_drafted"] = drafts.per_step_drafted;
  }
  return json;
}

}  // namespace

Json MetricsJson(const Usage& usage) {
  if (!usage.timings && !usage.drafts) return nullptr;
  const RequestTimings timings = usage.timings.value_or(RequestTimings());
  const auto number = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  return {{"time_to_first_token_ms", number(timings.time_to_first_token_ms)},
          {"generation_time_ms", number(timings.generation_time_ms)},
          {"queue_time_ms", number(timings.queue_time_ms)},
          {"mean_itl_ms", number(timings.mean_itl_ms)},
          {"tokens_per_second", number(timings.tokens_per_second)},
          {"speculative_decoding", usage.drafts ? DraftsJson(*usage.drafts) : Json(nullptr)}};
}

Json StopReasonJson(const wire::StopReason& reason) {
  if (const auto* id = std::get_if<int64_t>(&reason)) return *id;
  if (const auto* text = std::get_if<std::string>(&reason)) return *text;
  return nullptr;
}

Json TokenIdsJson(const std::vector<TokenId>& ids) { return Json(ids); }

Json PromptLogprobsJson(const std::vector<PositionLogprobs>& positions) {
  Json list = Json::array({nullptr});
  for (const PositionLogprobs& position : positions) {
    Json entry = Json::object();
    for (const ScoredToken& token : position.top) {
      entry[std::to_string(token.token_id)] = {
          {"logprob", token.logprob}, {"rank", token.rank}, {"decoded_token", token.text}};
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json ChatLogprobsJson(const std::vector<PositionLogprobs>& positions, int64_t num_top) {
  Json content = Json::array();
  for (const PositionLogprobs& position : positions) {
    Json entry = ScoredTokenJson(position.token);
    Json top = Json::array();
    for (const ScoredToken& token : position.top) {
      if (num_top >= 0 && static_cast<int64_t>(top.size()) >= num_top) break;
      top.push_back(ScoredTokenJson(token));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

Json UnpackJson(const wire::RawValue& value) {
  if (value.is_nil()) return nullptr;
  Json json = Json::from_msgpack(value.packed, true, false);
  return json.is_discarded() ? Json(nullptr) : json;
}

void CompletionLogprobs::AddToken(std::string_view token) {
  tokens_.emplace_back(token);
  offsets_.push_back(text_offset_);
  text_offset_ += CountCharacters(token);
}

void CompletionLogprobs::AddUnscored(std::string_view token) {
  AddToken(token);
  token_logprobs_.push_back(std::nullopt);
  top_.emplace_back();
}

void CompletionLogprobs::Add(const PositionLogprobs& position) {
  AddToken(position.token.text);
  token_logprobs_.push_back(position.token.logprob);
  const auto size = static_cast<int64_t>(position.top.size());
  const int64_t num_shown = num_top_ < 0 ? size : std::min(size, num_top_ + 1);
  top_.emplace_back(position.top.begin(), position.top.begin() + num_shown);
}

Json CompletionLogprobs::ToJson() const {
  Json token_logprobs = Json::array();
  Json top_logprobs = Json::array();
  for (const auto& logprob : token_logprobs_) {
    token_logprobs.push_back(logprob ? Json(*logprob) : Json(nullptr));
  }
  for (const auto& top : top_) {
    Json entry = top.empty() ? Json(nullptr) : Json::object();
    for (const ScoredToken& token : top) entry[token.text] = token.logprob;
    top_logprobs.push_back(std::move(entry));
  }
  return {{"text_offset", offsets_},
          {"token_logprobs", std::move(token_logprobs)},
          {"tokens", tokens_},
          {"top_logprobs", std::move(top_logprobs)}};
}

ChunkWriter::ChunkWriter(const ResponseHead& head, std::string_view object) {
  prefix_ = "data: {\"id\":";
  AppendQuoted(head.id, &prefix_);
  prefix_ += ",\"object\":\"" + std::string(object) + "\",\"created\":";
  AppendInteger(head.created, &prefix_);
  prefix_ += ",\"model\":";
  AppendQuoted(head.model, &prefix_);
  prefix_ += ",\"choices\":[";
  if (!head.system_fingerprint.empty()) AppendQuoted(head.system_fingerprint, &fingerprint_json_);
}

void ChunkWriter::Begin(int choice, std::string* out) const {
  out->append(prefix_).append("{\"index\":"sv);
  AppendInteger(choice, out);
}

void ChunkWriter::End(std::string_view rest, const Usage* usage, std::string* out) const {
  out->append("}]"sv);
  if (usage != nullptr) {
    out->append(",\"usage\":"sv);
    AppendUsageJson(*usage, out);
  }
  out->append(rest).append("}\n\n"sv);
}

void ChunkWriter::AppendUsage(const Usage& usage, std::string* out) const {
  out->append(prefix_).append("],\"usage\":"sv);
  AppendUsageJson(usage, out);
  if (!fingerprint_json_.empty())
    out->append(",\"system_fingerprint\":"sv).append(fingerprint_json_);
  if (usage.timings || usage.drafts) {
    out->append(",\"metrics\":"sv).append(DumpJson(MetricsJson(usage)));
  }
  out->append("}\n\n"sv);
}

}  // namespace tandem
