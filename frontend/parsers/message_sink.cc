#include "frontend/parsers/message_sink.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

}  // namespace

void MessageSink::AddContent(std::string_view text) {
  const size_t last = text.find_last_not_of(kBlanks);
  if (last == std::string_view::npos) {
    held_blanks_ += text;
    return;
  }
  delta_.content += held_blanks_;
  delta_.content += text.substr(0, last + 1);
  held_blanks_ = text.substr(last + 1);
}

void MessageSink::BeginCall(std::string_view name, std::string_view id) {
  const int32_t index = num_calls_++;
  if (index >= max_calls_) return;
  delta_.tool_calls.push_back({index, std::string(id), std::string(name), {}});
}

void MessageSink::AddArguments(std::string_view text) {
  const int32_t index = num_calls_ - 1;
  if (text.empty() || index >= max_calls_) return;
  if (delta_.tool_calls.empty() || delta_.tool_calls.back().index != index) {
    delta_.tool_calls.push_back({index, {}, {}, {}});
  }
  delta_.tool_calls.back().arguments += text;
}

void MessageSink::End() {
  if (num_calls_ == 0) delta_.content += held_blanks_;
  held_blanks_.clear();
}

}  // namespace tandem
