#include "frontend/parsers/message_parser.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("gpt-oss' analysis is reasoning while it lasts") {
  MessageFormat format;
  format.is_harmony = true;
  format.choice = MessageFormat::Choice::kNone;
  MessageParser parser(format);
  std::string reasoning, content;
  const auto feed = [&](std::string_view text) {
    const ParsedDelta delta = parser.Feed(text);
    reasoning += delta.reasoning;
    content += delta.content;
    return parser.in_reasoning();
  };
  CHECK(!feed("<|channel|>"));
  CHECK(!feed("analysis"));
  CHECK(feed("<|message|>"));
  CHECK(feed("One, "));
  CHECK(feed("two"));
  CHECK(!feed("<|end|>"));
  CHECK(!feed("<|start|>assistant<|channel|>final"));
  CHECK(!feed("<|message|>"));
  CHECK(!feed("Three"));
  parser.End();
  CHECK(reasoning == "One, two");
  CHECK(content == "Three");
}

}  // namespace
}  // namespace tandem
