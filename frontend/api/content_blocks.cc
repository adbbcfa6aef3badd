#include "frontend/api/content_blocks.h"

#include <nlohmann/json.hpp>

#include "frontend/openai/json.h"

namespace tandem {

void ContentBlocks::Add(MessageDelta& delta) {
  delta.ForEach([this](std::string_view text) { AddText(BlockKind::kThinking, text); },
                [this](std::string_view text) { AddText(BlockKind::kText, text); },
                [this](const ToolCallDelta& call) { AddCall(call); });
}

void ContentBlocks::AddText(BlockKind kind, std::string_view text) {
  if (open_ != kind) Open(kind, nullptr);
  sink_->AppendToBlock(kind, text);
}

void ContentBlocks::AddCall(const ToolCallDelta& call) {
  if (call.index > last_call_) {
    last_call_ = call.index;
    arguments_.clear();
    Open(BlockKind::kToolUse, &call);
  }
  if (call.arguments.empty()) return;
  arguments_ += call.arguments;
  sink_->AppendToBlock(BlockKind::kToolUse, call.arguments);
}

bool ContentBlocks::has_whole_calls() const { return has_calls() && Json::accept(arguments_); }

void ContentBlocks::Open(BlockKind kind, const ToolCallDelta* call) {
  Close();
  open_ = kind;
  sink_->BeginBlock(kind, call);
}

void ContentBlocks::Close() {
  if (!open_) return;
  sink_->EndBlock(*open_);
  open_.reset();
}

}  // namespace tandem
