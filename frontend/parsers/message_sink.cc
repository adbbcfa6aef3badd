#include "frontend/parsers/message_sink.h"

namespace tandem {

void MessageSink::AddReasoning(std::string_view text) {
  if (!holds_reasoning_) return delta_.AddReasoning(text);
  held_reasoning_ += text;
}

void MessageSink::ReleaseReasoning() {
  if (!holds_reasoning_) return;
  holds_reasoning_ = false;
  delta_.AddReasoning(held_reasoning_);
}

void MessageSink::AddContent(std::string_view text) {
  held_blanks_.Pass(text, [this](std::string_view part) {
    ReleaseReasoning();
    delta_.AddContent(part);
  });
}

void MessageSink::BeginCall(std::string_view name, std::string_view id) {
  ReleaseReasoning();
  const int32_t index = num_calls_++;
  if (index >= max_calls_) return;
  delta_.AddCall({index, std::string(id), std::string(name), {}});
}

void MessageSink::AddArguments(std::string_view text) {
  const int32_t index = num_calls_ - 1;
  if (text.empty() || index >= max_calls_) return;
  if (delta_.tool_calls.empty() || delta_.tool_calls.back().index != index) {
    delta_.AddCall({index, {}, {}, {}});
  }
  delta_.tool_calls.back().arguments += text;
}

void MessageSink::End() {
  const std::string blanks = held_blanks_.Take();
  if (holds_reasoning_ && !held_reasoning_.empty()) return delta_.AddContent(held_reasoning_);
  if (num_calls_ == 0) delta_.AddContent(blanks);
}

}  // namespace tandem
