// A chat template: refused with a message, or rendered within its limits.

#include <nlohmann/json.hpp>
#include <string>

#include "common/check.h"
#include "frontend/chat/chat_template.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxOutputBytes = 1 << 16;

ChatTemplateLimits TightLimits() {
  ChatTemplateLimits limits;
  limits.max_steps = 20'000;
  limits.max_output_bytes = kMaxOutputBytes;
  limits.max_value_bytes = 4 << 20;
  return limits;
}

const ordered_json& Variables() {
  static const ordered_json variables = ordered_json::parse(R"({
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "H\u00e9!"}]},
      {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": [1, 2.5, true]}}}]},
      {"role": "tool", "tool_call_id": "a", "content": "3"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d",
      "parameters": {"type": "object", "properties": {"x": {"type": "array"}}}}}]})");
  return variables;
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const auto compiled = ChatTemplate::Compile(FuzzInput(data, size).Rest(), TightLimits());
  if (!compiled.ok()) {
    CHECK(!compiled.status().message().empty());
    return 0;
  }
  ChatTemplateInput input;
  input.messages = &Variables()["messages"];
  input.tools = &Variables()["tools"];
  for (const bool continued : {false, true}) {
    input.add_generation_prompt = !continued;
    input.continue_final_message = continued;
    const auto text = compiled->Render(input);
    CHECK(text.ok() || !text.status().message().empty());
    CHECK(!text.ok() || static_cast<int64_t>(text->size()) <= kMaxOutputBytes);
  }
  return 0;
}
