#include "frontend/api/message_events.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/strings.h"
#include "frontend/api/render.h"

namespace tandem {
namespace {

using std::string_view_literals::operator""sv;

// How a kind of block begins, and the type and key of its deltas.
struct BlockForm {
  std::string_view empty_block;
  std::string_view delta_prefix;
};

BlockForm FormOf(BlockKind kind) {
  switch (kind) {
    case BlockKind::kThinking:
      return {R"({"type":"thinking","thinking":""})"sv,
              R"({"type":"thinking_delta","thinking":")"sv};
    case BlockKind::kText:
      return {R"({"type":"text","text":""})"sv, R"({"type":"text_delta","text":")"sv};
    case BlockKind::kToolUse:
      break;
  }
  return {""sv, R"({"type":"input_json_delta","partial_json":")"sv};
}

}  // namespace

MessageStop StopOf(const MessageDelta& last, const ContentBlocks& blocks) {
  if (last.finish_reason == FinishReason::kLength) return {"max_tokens", {}};
  const bool stopped =
      last.finish_reason == FinishReason::kStop || last.finish_reason == FinishReason::kToolCalls;
  if (!stopped) return {};
  const auto* text = std::get_if<std::string>(&last.stop_reason);
  if (text != nullptr && !blocks.has_whole_calls()) return {"stop_sequence", *text};
  if (blocks.has_calls()) return {"tool_use", {}};
  return {};
}

Json MessageUsageJson(const Usage& usage) {
  Json json = {{"input_tokens", usage.prompt_tokens}, {"output_tokens", usage.completion_tokens}};
  if (!usage.cached_tokens) return json;
  // The three add up to the prompt.
  const int64_t uncached = usage.prompt_tokens - *usage.cached_tokens - usage.created_cache_tokens;
  json["input_tokens"] = std::max<int64_t>(0, uncached);
  json["cache_creation_input_tokens"] = usage.created_cache_tokens;
  json["cache_read_input_tokens"] = *usage.cached_tokens;
  return json;
}

std::string MakeSignature() { return RandomHex(32); }

void MessageEvents::Start(const ResponseHead& head, const Usage& usage) {
  Usage before = usage;
  before.completion_tokens = 0;
  out_->append("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":");
  AppendQuoted(head.id, out_);
  out_->append(",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"model\":");
  AppendQuoted(head.model, out_);
  out_->append(",\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
  out_->append(DumpJson(MessageUsageJson(before))).append("}}\n\n");
}

void MessageEvents::BeginEvent(std::string_view type) {
  out_->append("event: "sv).append(type).append("\ndata: {\"type\":\""sv).append(type);
  out_->append("\",\"index\":"sv).append(std::to_string(num_blocks_ - 1));
}

void MessageEvents::BeginBlock(BlockKind kind, const ToolCallDelta* call) {
  ++num_blocks_;
  BeginEvent("content_block_start"sv);
  out_->append(",\"content_block\":"sv);
  if (kind == BlockKind::kToolUse) {
    out_->append("{\"type\":\"tool_use\",\"id\":"sv);
    AppendQuoted(call->id, out_);
    out_->append(",\"name\":"sv);
    AppendQuoted(call->name, out_);
    out_->append(",\"input\":{}}"sv);
  } else {
    out_->append(FormOf(kind).empty_block);
  }
  out_->append("}\n\n"sv);
}

void MessageEvents::AppendToBlock(BlockKind kind, std::string_view text) {
  BeginEvent("content_block_delta"sv);
  out_->append(",\"delta\":"sv).append(FormOf(kind).delta_prefix);
  AppendEscaped(text, out_);
  out_->append("\"}}\n\n"sv);
}

void MessageEvents::EndBlock(BlockKind kind) {
  if (kind == BlockKind::kThinking) {
    BeginEvent("content_block_delta"sv);
    out_->append(",\"delta\":{\"type\":\"signature_delta\",\"signature\":"sv);
    AppendQuoted(MakeSignature(), out_);
    out_->append("}}\n\n"sv);
  }
  BeginEvent("content_block_stop"sv);
  out_->append("}\n\n"sv);
}

void MessageEvents::End(const MessageDelta& last) {
  blocks_.End();
  stop_ = StopOf(last, blocks_);
}

void MessageEvents::Stop(const Usage& usage) {
  out_->append(
      "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":");
  AppendQuoted(stop_.reason, out_);
  out_->append(",\"stop_sequence\":");
  if (stop_.reason == "stop_sequence") {
    AppendQuoted(stop_.sequence, out_);
  } else {
    out_->append("null");
  }
  out_->append("},\"usage\":").append(DumpJson(MessageUsageJson(usage))).append("}\n\n");
  out_->append("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

}  // namespace tandem
