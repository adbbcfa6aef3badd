#pragma once

// What parsers make of a model's text: reasoning, content and tool calls, as the deltas of one
// piece. Content keeps its blanks only where they stand between other content: those in front of a
// call or after the last one are layout of the call's format, so blanks are held until content
// follows or the text ends without a call. Thread: any one at a time.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/openai/responses.h"

namespace tandem {

using ParsedDelta = MessageParts;

// Holds the last blanks of a text back until more of it follows.
class HeldBlanks {
 public:
  // Gives `add` what was held and the text, without the text's own last blanks.
  template <class Add>
  void Pass(std::string_view text, const Add& add) {
    const size_t last = text.find_last_not_of(" \t\r\n");
    if (last == std::string_view::npos) {
      held_ += text;
      return;
    }
    add(std::string_view(held_));
    add(text.substr(0, last + 1));
    held_ = text.substr(last + 1);
  }
  std::string Take() { return std::exchange(held_, {}); }

 private:
  std::string held_;
};

class MessageSink {
 public:
  // max_calls: calls beyond it are parsed and dropped (parallel_tool_calls: false gives 1).
  // reasoning_may_be_content: it is the content of a message without content and calls, so it waits
  // for the first of them.
  explicit MessageSink(int32_t max_calls = INT32_MAX, bool reasoning_may_be_content = false)
      : max_calls_(max_calls), holds_reasoning_(reasoning_may_be_content) {}

  void AddReasoning(std::string_view text);
  void AddContent(std::string_view text);
  // id: where the format has ids of its own; its first delta is the one with the name.
  void BeginCall(std::string_view name, std::string_view id = {});
  // Of the call that was begun last.
  void AddArguments(std::string_view text);
  void AddCall(std::string_view name, std::string_view arguments, std::string_view id = {}) {
    BeginCall(name, id);
    AddArguments(arguments);
  }
  // The text has ended.
  void End();

  // Calls so far, those beyond max_calls too.
  int32_t num_calls() const { return num_calls_; }
  // What was added since the last call of this.
  ParsedDelta Take() { return std::exchange(delta_, {}); }

 private:
  void ReleaseReasoning();

  const int32_t max_calls_;
  int32_t num_calls_ = 0;
  bool holds_reasoning_;
  std::string held_reasoning_;
  HeldBlanks held_blanks_;
  ParsedDelta delta_;
};

}  // namespace tandem
